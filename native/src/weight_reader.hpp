// Layers whose weights are read from files each time before they are used.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "file_piece.hpp"

namespace tandem {

struct ReaderOptions {
    int num_threads = 4;                 // for each copy of the files
    std::int64_t piece_bytes = 1 << 20;  // of one read; a multiple of the alignment
    std::int64_t alignment = 4096;       // of what a read names; 1: any will do
    // Called every tenth of a second by a thread that waits in `acquire`; what it throws ends the
    // wait, and nothing else.
    std::function<void()> while_waiting = nullptr;
};

// Reads layers into slots, in a circle: the next ones are read while one is used, and after the
// last come the first of the next sweep. Its threads sleep while all slots are full.
//
// Of the same files in several places, as on several disks, each copy has threads of its own. They
// take the next piece as soon as they have read one, so that each disk reads at its own rate, and
// who is slower reads less.
//
// One thread at a time may use it. After an error it reads nothing any more, and every `acquire`
// throws the error.
class WeightReader {
  public:
    // copies: the files that layers are read from, of each copy in the same order.
    // slots: memory of `slot_bytes` each, which outlives the reader.
    // Throws std::invalid_argument for no layers, slots or copies, copies of other sizes, bytes
    // beyond a file's or slot's end, or options that make no sense.
    WeightReader(std::vector<std::vector<WeightFile>> copies, const std::vector<LayerFiles>& layers,
                 std::vector<std::byte*> slots, std::int64_t slot_bytes,
                 const ReaderOptions& options);
    ~WeightReader();
    WeightReader(const WeightReader&) = delete;
    WeightReader& operator=(const WeightReader&) = delete;

    // Waits for a layer, which must be the circle's next; returns where it begins. As many may be
    // in use as there are slots.
    // Throws std::runtime_error if it cannot be read or the reader was stopped, std::logic_error
    // for another layer, or if all slots are in use.
    const std::byte* acquire(int layer);

    // The layer longest in use is not needed any more: its slot is filled anew.
    // Throws std::logic_error if none is in use.
    void release();

    // Where weights' addresses are for, until `acquire` says which slot they are in.
    const std::byte* first_slot() const { return slots_.front(); }
    bool is_in_first_slot(const void* pointer) const {
        const auto* at = static_cast<const std::byte*>(pointer);
        return !std::less<>{}(at, first_slot()) && std::less<>{}(at, first_slot() + slot_bytes_);
    }
    int num_layers() const { return static_cast<int>(layers_.size()); }

    // Ends the threads; waits for reads that have begun. Any thread may call it.
    void stop();

    std::vector<std::int64_t> bytes_read() const;  // since the start, of each copy

  private:
    // A piece of the `turn`-th layer that was ever read.
    struct Claim {
        std::int64_t turn;
        const FileExtent* piece;
    };
    struct Turn {
        std::int64_t number = -1;
        std::size_t pieces_left = 0;
    };

    void check(const LayerFiles& layer, std::int64_t slot_bytes) const;
    void work(std::size_t copy);
    bool claim(Claim& claim);
    void read(const Claim& claim, std::size_t copy, std::byte* spare) const;
    void complete(const Claim& claim, std::size_t copy);
    void fail(std::exception_ptr error);
    std::size_t slot_of(std::int64_t turn) const {
        return static_cast<std::size_t>(turn) % slots_.size();
    }
    const LayerFiles& layer_of(std::int64_t turn) const {
        return layers_[static_cast<std::size_t>(turn) % layers_.size()];
    }

    const std::vector<std::vector<WeightFile>> copies_;
    const std::vector<std::byte*> slots_;
    const std::int64_t slot_bytes_;
    const ReaderOptions options_;
    std::vector<LayerFiles> layers_;             // in pieces
    std::vector<std::vector<int>> layer_files_;  // by layer, the files that it lies in, each once
    std::mutex stopping_threads_;
    mutable std::mutex mutex_;  // of all below
    std::condition_variable work_;
    std::condition_variable arrived_;
    std::vector<Turn> turns_;  // by slot, what is in it or being read
    std::int64_t reading_ = 0;
    std::size_t next_piece_ = 0;  // of the turn `reading_`
    std::int64_t acquired_ = 0;   // turns
    std::int64_t used_ = 0;       // turns released
    std::vector<std::int64_t> bytes_read_;
    bool stopping_ = false;
    std::exception_ptr error_;
    std::vector<std::thread> threads_;
};

}  // namespace tandem

#include "weight_reader.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "require.hpp"

namespace tandem {
namespace {

constexpr std::size_t kPage = 4096;
constexpr auto kSlice = std::chrono::milliseconds(100);

struct FreePages {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{kPage}); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;

Pages allocate_pages(std::int64_t size) {
    return Pages(static_cast<std::byte*>(
        ::operator new(static_cast<std::size_t>(size), std::align_val_t{kPage})));
}

}  // namespace

WeightReader::WeightReader(std::vector<std::vector<WeightFile>> copies,
                           const std::vector<LayerFiles>& layers, std::vector<std::byte*> slots,
                           std::int64_t slot_bytes, const ReaderOptions& options)
    : copies_(std::move(copies)),
      slots_(std::move(slots)),
      slot_bytes_(slot_bytes),
      options_(options),
      turns_(slots_.size()),
      bytes_read_(copies_.size()) {
    require(!layers.empty() && !slots_.empty(), "a reader needs layers and slots");
    require(!copies_.empty(), "a reader needs files");
    for (const std::vector<WeightFile>& files : copies_)
        require(
            std::ranges::equal(files, copies_.front(), {}, &WeightFile::size, &WeightFile::size),
            "copies of files must be as large as they are");
    require(options.num_threads > 0, "a reader needs threads");
    require(options.alignment > 0 && options.alignment <= static_cast<std::int64_t>(kPage) &&
                options.piece_bytes > 0 && options.piece_bytes % options.alignment == 0,
            "pieces must be multiples of the alignment, which is at most a page");
    for (const LayerFiles& layer : layers) {
        check(layer, slot_bytes);
        layers_.push_back({cut_pieces(layer.extents, options.piece_bytes), layer.base});
        std::vector<int>& files = layer_files_.emplace_back();
        for (const FileExtent& extent : layer.extents)
            if (std::ranges::find(files, extent.file) == files.end()) files.push_back(extent.file);
    }
    try {
        for (int i = 0; i < options.num_threads; ++i)
            for (std::size_t copy = 0; copy < copies_.size(); ++copy)
                threads_.emplace_back([this, copy] { work(copy); });
    } catch (...) {
        stop();
        throw;
    }
}

WeightReader::~WeightReader() { stop(); }

void WeightReader::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_.notify_all();
    arrived_.notify_all();
    const std::lock_guard lock(stopping_threads_);
    for (std::thread& thread : threads_)
        if (thread.joinable()) thread.join();
}

void WeightReader::check(const LayerFiles& layer, std::int64_t slot_bytes) const {
    require(!layer.extents.empty(), "a layer needs extents");
    require(layer.base >= 0 && layer.base <= slot_bytes, "a layer begins beyond its slot");
    const std::int64_t space = slot_bytes - layer.base;
    const std::vector<WeightFile>& files = copies_.front();
    for (const FileExtent& extent : layer.extents) {
        require(extent.file >= 0 && static_cast<std::size_t>(extent.file) < files.size(),
                "an extent names no file");
        require(
            extent.offset >= 0 && extent.size > 0 &&
                extent.size <= files[static_cast<std::size_t>(extent.file)].size() &&
                extent.offset <= files[static_cast<std::size_t>(extent.file)].size() - extent.size,
            "an extent lies beyond its file's end");
        require(extent.target >= 0 && extent.size <= space && extent.target <= space - extent.size,
                "an extent does not fit in a slot");
    }
}

const std::byte* WeightReader::acquire(int layer) {
    std::unique_lock lock(mutex_);
    const auto check = [&] {
        if (error_) std::rethrow_exception(error_);
        if (stopping_) throw std::runtime_error("the weights' reader was stopped");
    };
    check();
    const std::int64_t number = acquired_;
    if (number % num_layers() != layer)
        throw std::logic_error("layer " + std::to_string(layer) +
                               " of the circle is not the next one; an earlier step was not ended");
    if (number - used_ >= std::ssize(slots_))
        throw std::logic_error("every slot is in use: release one first");
    const Turn& turn = turns_[slot_of(number)];
    const auto has_arrived = [&] {
        return stopping_ || error_ || (turn.number == number && turn.pieces_left == 0);
    };
    while (!arrived_.wait_for(lock, kSlice, has_arrived)) {
        if (!options_.while_waiting) continue;
        lock.unlock();
        options_.while_waiting();
        lock.lock();
    }
    check();
    ++acquired_;
    return slots_[slot_of(number)] + layer_of(number).base;
}

void WeightReader::release() {
    {
        const std::lock_guard lock(mutex_);
        if (used_ == acquired_) throw std::logic_error("no layer is in use");
        ++used_;
    }
    work_.notify_all();
}

std::vector<std::int64_t> WeightReader::bytes_read() const {
    const std::lock_guard lock(mutex_);
    return bytes_read_;
}

void WeightReader::work(std::size_t copy) {
    try {
        const Pages spare = allocate_pages(options_.piece_bytes + 2 * options_.alignment);
        Claim mine{};
        while (claim(mine)) {
            read(mine, copy, spare.get());
            complete(mine, copy);
        }
    } catch (...) {
        fail(std::current_exception());
    }
}

// Waits for a piece to read; false: there will be none.
bool WeightReader::claim(Claim& claim) {
    std::unique_lock lock(mutex_);
    const auto slots = static_cast<std::int64_t>(slots_.size());
    work_.wait(lock, [&] { return stopping_ || error_ || reading_ - used_ < slots; });
    if (stopping_ || error_) return false;
    const std::vector<FileExtent>& pieces = layer_of(reading_).extents;
    if (next_piece_ == 0) turns_[slot_of(reading_)] = {reading_, pieces.size()};
    claim = {reading_, &pieces[next_piece_]};
    if (++next_piece_ == pieces.size()) {
        next_piece_ = 0;
        ++reading_;
    }
    return true;
}

// Whole blocks go straight to their slot; others, and what has another position within a block
// there than in the file, through the thread's `spare` memory.
void WeightReader::read(const Claim& claim, std::size_t copy, std::byte* spare) const {
    const FileExtent& piece = *claim.piece;
    const WeightFile& file = copies_[copy][static_cast<std::size_t>(piece.file)];
    const std::int64_t block = options_.alignment;
    std::byte* target = slots_[slot_of(claim.turn)] + layer_of(claim.turn).base + piece.target;
    const std::int64_t before = piece.offset % block;
    const std::int64_t needed = before + piece.size;
    const bool whole =
        before == 0 && needed % block == 0 &&
        reinterpret_cast<std::uintptr_t>(target) % static_cast<std::uintptr_t>(block) == 0;
    if (whole) {
        file.read(target, piece.offset, needed, needed, block);
        return;
    }
    const std::int64_t capacity = (needed + block - 1) / block * block;
    file.read(spare, piece.offset - before, needed, capacity, block);
    std::memcpy(target, spare + before, static_cast<std::size_t>(piece.size));
}

void WeightReader::complete(const Claim& claim, std::size_t copy) {
    std::unique_lock lock(mutex_);
    bytes_read_[copy] += claim.piece->size;
    Turn& turn = turns_[slot_of(claim.turn)];
    if (turn.pieces_left > 1) {
        --turn.pieces_left;
        return;
    }
    lock.unlock();  // nobody else has a piece of this layer
    for (const int file : layer_files_[static_cast<std::size_t>(claim.turn) % layers_.size()])
        for (const std::vector<WeightFile>& files : copies_)
            files[static_cast<std::size_t>(file)].check_unchanged();
    lock.lock();
    turn.pieces_left = 0;
    lock.unlock();
    arrived_.notify_all();
}

void WeightReader::fail(std::exception_ptr error) {
    {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::move(error);
    }
    work_.notify_all();
    arrived_.notify_all();
}

}  // namespace tandem

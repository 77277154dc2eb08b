// Parts of weight files in the pieces in which they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// A file for reading that is known to stay as it is: what it says of itself is kept when it is
// opened. Owns its descriptor.
class WeightFile {
  public:
    // Duplicates `descriptor`; `path` is for messages.
    // Throws std::system_error if that fails.
    WeightFile(int descriptor, std::string path);
    ~WeightFile();
    WeightFile(WeightFile&& other) noexcept;
    WeightFile(const WeightFile&) = delete;
    WeightFile& operator=(const WeightFile&) = delete;

    // At least `needed` bytes from `offset` on, `capacity` at most. Blocks, and may be called by
    // several threads.
    // alignment: of offset, capacity and memory, and of where a read may go on.
    // Throws std::runtime_error for a file that ends before or cannot be read.
    void read(std::byte* target, std::int64_t offset, std::int64_t needed, std::int64_t capacity,
              std::int64_t alignment) const;

    // Throws std::runtime_error if somebody has written to the file since it was opened.
    void check_unchanged() const;

    std::int64_t size() const { return size_; }

  private:
    int descriptor_;
    std::string path_;
    std::int64_t size_ = 0;
    std::int64_t modified_ns_ = 0;
};

// A run of bytes in a file, and where it belongs in a slot.
struct FileExtent {
    int file;  // which of the reader's
    std::int64_t offset;
    std::int64_t size;
    std::int64_t target;  // from the layer's base on
};

// What a layer is read from.
struct LayerFiles {
    std::vector<FileExtent> extents;
    std::int64_t base = 0;  // where in a slot the layer begins, so that blocks of its files lie at
                            // blocks of memory
};

// The extents cut at multiples of `piece_bytes` of their files, so that all pieces but an extent's
// first and last are aligned.
std::vector<FileExtent> cut_pieces(const std::vector<FileExtent>& extents,
                                   std::int64_t piece_bytes);

}  // namespace tandem

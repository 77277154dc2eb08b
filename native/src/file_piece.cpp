#include "file_piece.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace tandem {
namespace {

struct FileState {
    std::int64_t size;
    std::int64_t modified_ns;
};

FileState state_of(int descriptor, const std::string& path) {
    struct stat found{};
    if (fstat(descriptor, &found) != 0)
        throw std::system_error(errno, std::generic_category(), path);
    return {found.st_size,
            std::int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace

WeightFile::WeightFile(int descriptor, std::string path)
    : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), path_(std::move(path)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), path_);
    try {
        const FileState state = state_of(descriptor_, path_);
        size_ = state.size;
        modified_ns_ = state.modified_ns;
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

WeightFile::~WeightFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

WeightFile::WeightFile(WeightFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_),
      modified_ns_(other.modified_ns_) {}

void WeightFile::read(std::byte* target, std::int64_t offset, std::int64_t needed,
                      std::int64_t capacity, std::int64_t alignment) const {
    std::int64_t done = 0;
    while (done < needed) {
        const ssize_t count = pread(descriptor_, target + done,
                                    static_cast<std::size_t>(capacity - done), offset + done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0)
            throw std::runtime_error("cannot read weights from " + path_ + ": " +
                                     std::generic_category().message(errno));
        const std::int64_t reached = done + count;
        if (reached >= needed) return;
        done = reached - reached % alignment;  // a later read must begin at a whole block
        if (count == 0 || count < alignment)
            throw std::runtime_error(path_ +
                                     " was cut off while its weights were in use: it ends "
                                     "at byte " +
                                     std::to_string(offset + reached) + " of " +
                                     std::to_string(size_) + "; restore the file and start again");
    }
}

void WeightFile::check_unchanged() const {
    const FileState now = state_of(descriptor_, path_);
    if (now.size == size_ && now.modified_ns == modified_ns_) return;
    throw std::runtime_error(path_ +
                             " was changed while its weights were in use; restore the file "
                             "and start again");
}

std::vector<FileExtent> cut_pieces(const std::vector<FileExtent>& extents,
                                   std::int64_t piece_bytes) {
    std::vector<FileExtent> pieces;
    for (const FileExtent& extent : extents) {
        const std::int64_t end = extent.offset + extent.size;
        for (std::int64_t at = extent.offset; at < end;) {
            const std::int64_t next = std::min(end, (at / piece_bytes + 1) * piece_bytes);
            pieces.push_back({extent.file, at, next - at, extent.target + at - extent.offset});
            at = next;
        }
    }
    return pieces;
}

}  // namespace tandem

#include "copy_blocks.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "stream_copy.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kPartsPerThread = 4;
constexpr std::int64_t kMinPartBytes = 1 << 18;

std::int64_t count_copies(const CopyMemory& m) {
    return m.layers * static_cast<std::int64_t>(m.source_ids.size());
}

std::int64_t count_parts(const CopyMemory& m, int num_threads) {
    const std::int64_t copies = count_copies(m);
    const std::int64_t worthwhile = copies * m.block_bytes / kMinPartBytes;
    const std::int64_t most = std::min(copies, num_threads * kPartsPerThread);
    return std::max<std::int64_t>(1, std::min(worthwhile, most));
}

void check_ids(std::span<const std::int64_t> ids, std::int64_t blocks, const char* name) {
    for (std::int64_t id : ids)
        if (id < 0 || id >= blocks)
            throw std::invalid_argument(std::string(name) + " names block " + std::to_string(id) +
                                        ", but there are " + std::to_string(blocks));
}

void check_distinct(std::vector<std::int64_t> ids, const char* message) {
    std::sort(ids.begin(), ids.end());
    if (std::adjacent_find(ids.begin(), ids.end()) != ids.end())
        throw std::invalid_argument(message);
}

void check(const CopyMemory& m) {
    if (m.source_ids.size() != m.target_ids.size())
        throw std::invalid_argument("as many blocks must be written as are read");
    check_ids(m.source_ids, m.source_blocks, "source_ids");
    check_ids(m.target_ids, m.target_blocks, "target_ids");
    std::vector<std::int64_t> written(m.target_ids.begin(), m.target_ids.end());
    check_distinct(written, "target_ids names a block twice");
    const std::byte* source_end = m.source + m.layers * m.source_blocks * m.block_bytes;
    const std::byte* target_end = m.target + m.layers * m.target_blocks * m.block_bytes;
    if (source_end <= m.target || target_end <= m.source) return;
    if (m.source != m.target || m.source_blocks != m.target_blocks)
        throw std::invalid_argument("the pools overlap");
    std::vector<std::int64_t> read(m.source_ids.begin(), m.source_ids.end());
    std::sort(read.begin(), read.end());
    for (std::int64_t id : written)
        if (std::binary_search(read.begin(), read.end(), id))
            throw std::invalid_argument("block " + std::to_string(id) +
                                        " of one pool would be read and written");
}

}  // namespace

CopyJob::CopyJob(const CopyMemory& memory, int num_threads)
    : Job(static_cast<int>(count_parts(memory, num_threads))),
      memory_(memory),
      ids_(memory.source_ids.begin(), memory.source_ids.end()),
      parts_(count_parts(memory, num_threads)) {
    ids_.insert(ids_.end(), memory.target_ids.begin(), memory.target_ids.end());
    const std::span<const std::int64_t> all(ids_);
    memory_.source_ids = all.first(memory.source_ids.size());
    memory_.target_ids = all.subspan(memory.source_ids.size());
    check(memory_);
}

// Blocks that follow each other in both pools are copied as one.
void CopyJob::run_part(int part) {
    const CopyMemory& m = memory_;
    const auto ids = static_cast<std::int64_t>(m.source_ids.size());
    const std::int64_t end = count_copies(m) * (part + 1) / parts_;
    for (std::int64_t i = count_copies(m) * part / parts_; i < end;) {
        const std::int64_t layer = i / ids, first = i % ids;
        const std::int64_t most = std::min(end - i, ids - first);
        std::int64_t run = 1;
        while (run < most && m.source_ids[first + run] == m.source_ids[first] + run &&
               m.target_ids[first + run] == m.target_ids[first] + run)
            ++run;
        const std::int64_t from = layer * m.source_blocks + m.source_ids[first];
        const std::int64_t to = layer * m.target_blocks + m.target_ids[first];
        stream_copy(m.target + to * m.block_bytes, m.source + from * m.block_bytes,
                    static_cast<std::size_t>(run * m.block_bytes));
        i += run;
    }
}

}  // namespace tandem

// Copies whole blocks of all layers from one pool in host memory to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "job.hpp"

namespace tandem {

// Memory of one call; but for the ids it must outlive its job. Pools are [layers, blocks,
// block_bytes].
struct CopyMemory {
    const std::byte* source;
    std::byte* target;
    std::int64_t source_blocks;
    std::int64_t target_blocks;
    std::int64_t layers;
    std::int64_t block_bytes;
    std::span<const std::int64_t> source_ids;
    std::span<const std::int64_t> target_ids;  // as many
};

class CopyJob final : public Job {
  public:
    // Copies the ids: what is checked is what is read and written.
    // Throws std::invalid_argument if a block does not exist, is written twice, or is written where
    // another is read: the order of copies is not defined.
    CopyJob(const CopyMemory& memory, int num_threads);

  private:
    void run_part(int part) override;

    CopyMemory memory_;
    std::vector<std::int64_t> ids_;  // to read, then to write
    std::int64_t parts_;
};

}  // namespace tandem

// Attention over the union of two disjoint key sets, from the attention over each.
#pragma once

#include <cstdint>

#include "job.hpp"

namespace tandem {

// Arrays of one call; must outlive its job. The result may be one of the inputs.
struct MergeMemory {
    const float* out_a;  // [rows, head_dim]
    const float* lse_a;  // [rows]; natural log, -inf: saw no key
    const float* out_b;
    const float* lse_b;
    float* out;
    float* lse;
    std::int64_t rows;
    std::int64_t head_dim;
};

class MergeJob final : public Job {
  public:
    MergeJob(const MergeMemory& memory, int num_threads);

  private:
    void run_part(int part) override;
    void merge(std::int64_t row) const;

    MergeMemory memory_;
    std::int64_t parts_;
};

}  // namespace tandem

// Attention with a further logit per head that takes part in the softmax without a value.
#pragma once

#include <cstdint>

#include "job.hpp"

namespace tandem {

// Arrays of one call, changed in place; must outlive its job.
struct SinkMemory {
    float* out;          // [tokens, heads, head_dim]
    float* lse;          // [tokens, heads]; natural log, -inf: saw no key
    const float* sinks;  // [heads]; natural logits
    std::int64_t tokens;
    std::int64_t heads;
    std::int64_t head_dim;
};

// The last step, after all partial results have been merged, so that each sink counts once.
class SinkJob final : public Job {
  public:
    SinkJob(const SinkMemory& memory, int num_threads);

  private:
    void run_part(int part) override;

    SinkMemory memory_;
    std::int64_t parts_;
};

}  // namespace tandem

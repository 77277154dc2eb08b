// What comes between the projections and attention: norms of query and key heads, and rotation.
#pragma once

#include <cstdint>

#include "job.hpp"

namespace tandem {

// Heads of one token lie together: queries, keys, then values, which stay as they are.
struct HeadShape {
    int heads;
    int kv_heads;
    int head_dim;

    bool operator==(const HeadShape&) const = default;
    std::int64_t token_elements() const { return (std::int64_t{heads} + 2 * kv_heads) * head_dim; }
};

struct HeadTransform {
    const float* query_norm = nullptr;  // [head_dim], root mean square; null: none
    const float* key_norm = nullptr;
    float epsilon = 0.0f;
    // Of each token's position, [tokens, head_dim]: cosines, and sines with the first half negated.
    // Element i turns with i + head_dim / 2. Null: no rotation.
    const float* cos = nullptr;
    const float* sin = nullptr;

    bool is_identity() const { return !query_norm && !key_norm && !cos; }
};

class HeadsJob final : public Job {
  public:
    // heads: [tokens, heads + 2 * kv_heads, head_dim], contiguous, changed in place; must outlive
    // the job, as must all that the transform names.
    HeadsJob(const HeadShape& shape, const HeadTransform& transform, float* heads,
             std::int64_t tokens, int num_threads);

  private:
    void run_part(int part) override;
    void transform_token(std::int64_t token) const;

    HeadShape shape_;
    HeadTransform transform_;
    float* heads_;
    std::int64_t tokens_;
};

}  // namespace tandem

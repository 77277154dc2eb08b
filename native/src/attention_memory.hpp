// What attention reads and writes in one call.
#pragma once

#include <cstdint>

#include "dtype.hpp"

namespace tandem {

// Memory of one call; must outlive its job.
struct AttentionMemory {
    const void* queries;        // [at least num_queries_needed, heads, head_dim]
    std::int64_t query_stride;  // from token to token, in elements
    DType query_type;
    const void* pages;  // [num_blocks, 2, kv_heads, block_size, head_dim], or as in QuantizedPage
    DType page_type;
    std::int64_t num_blocks;
    float* out;  // [num_tokens, heads, head_dim]; 0 where no key was seen
    float* lse;  // [num_tokens, heads]; natural log, -inf where no key was seen
    const float* sinks =
        nullptr;  // [heads]; logits that join the softmax without a value; null: none
};

// A softmax whose weights are relative to 2^max: weighted sums are to be multiplied by `factor`.
struct Normalised {
    float factor;
    float lse;
};

// `max` -inf and `weight` 0: no key was seen. A NaN among the scores is one in `weight`, whatever
// the maximum says. `sink`: natural log of what joins the denominator alone; may be
// null.
Normalised normalise(float max, float weight, const float* sink);

// Throws std::invalid_argument for scores that no softmax could be taken of.
void check_scales(float scale, float soft_cap);

// Throws std::invalid_argument if there is no page `max_block`.
void check_blocks(std::int32_t max_block, std::int64_t num_blocks);

}  // namespace tandem

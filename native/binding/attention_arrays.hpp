// What attention and appends read and write, checked against each other.
#pragma once

#include <optional>

#include "append.hpp"
#include "arrays.hpp"
#include "attention_memory.hpp"
#include "attention_plan.hpp"

namespace tandem {

// Pages of one layer, as `check_pages` has found them.
struct LayerPages {
    void* data;
    DType type;
    std::int64_t num_blocks;
};

// queries: [tokens, heads, head_dim]; a token's heads contiguous. out, lse: one row for each token
// of the plan. All throw std::invalid_argument for what does not fit.
AttentionMemory check_attention(const AttentionRows& rows, const View& queries,
                                const LayerPages& pages, const View& out, const View& lse,
                                const std::optional<ReadOnlyArray>& sinks);

// keys, values: [tokens, kv_heads, head_dim]; a token's heads contiguous. slots: [tokens].
AppendMemory check_append(const AttentionShape& shape, const LayerPages& pages, const View& keys,
                          const View& values, const View& slots);

}  // namespace tandem

#include "attention_arrays.hpp"

#include <string>

namespace tandem {

AttentionMemory check_attention(const AttentionRows& rows, const View& queries,
                                const LayerPages& pages, const View& out, const View& lse,
                                const std::optional<ReadOnlyArray>& sinks) {
    const AttentionShape& shape = rows.shape;
    queries.require_dimensions(3, "[tokens, heads, head_dim]").require_contiguous_entries();
    const std::int64_t tokens = queries.shape()[0];
    queries.require_shape({tokens, shape.heads, shape.head_dim});
    require(tokens >= rows.num_queries_needed, "q must hold at least " +
                                                   std::to_string(rows.num_queries_needed) +
                                                   " tokens, not " + std::to_string(tokens));
    out.require_shape({rows.num_tokens, shape.heads, shape.head_dim}).require_contiguous();
    lse.require_shape({rows.num_tokens, shape.heads}).require_contiguous();
    const float* sink = nullptr;
    if (sinks) {
        const View view("sinks", *sinks);
        sink = view.require_shape({shape.heads}).require_contiguous().floats();
    }
    return {queries.data(),   queries.stride(), queries.float_type(), pages.data, pages.type,
            pages.num_blocks, out.floats(),     lse.floats(),         sink};
}

AppendMemory check_append(const AttentionShape& shape, const LayerPages& pages, const View& keys,
                          const View& values, const View& slots) {
    slots.require_dimensions(1, "[tokens]").require_contiguous();
    const Sizes expected{slots.shape()[0], shape.kv_heads, shape.head_dim};
    keys.require_shape(expected).require_contiguous_entries();
    values.require_shape(expected).require_contiguous_entries();
    require(keys.float_type() == values.float_type(), "k and v must have the same element type");
    return {.keys = keys.data(),
            .values = values.data(),
            .key_stride = keys.stride(),
            .value_stride = values.stride(),
            .source_type = keys.float_type(),
            .slots = slots.longs(),
            .pages = pages.data,
            .page_type = pages.type,
            .num_blocks = pages.num_blocks,
            .kv_heads = shape.kv_heads,
            .block_size = shape.block_size,
            .head_dim = shape.head_dim};
}

}  // namespace tandem

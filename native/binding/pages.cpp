#include "pages.hpp"

#include "quantized_page.hpp"

namespace tandem {

DType check_pages(const View& pages, const AttentionShape& shape) {
    if (shape.code_bits == 0) {
        pages.require_dimensions(5, "[num_blocks, 2, kv_heads, block_size, head_dim]");
        const std::int64_t blocks = pages.shape()[0];
        pages.require_shape({blocks, 2, shape.kv_heads, shape.block_size, shape.head_dim});
        return pages.require_contiguous().float_type();
    }
    const QuantizedPage layout{shape.code_bits, shape.kv_heads, shape.block_size, shape.head_dim};
    layout.check();
    pages.require_dimensions(2, "[num_blocks, page_bytes]");
    pages.require_shape({pages.shape()[0], layout.page_bytes()});
    pages.require_contiguous().require_bytes();
    return shape.code_bits == 8 ? DType::kInt8 : DType::kInt4;
}

}  // namespace tandem

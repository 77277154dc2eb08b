#include "pages.hpp"

#include "quantized_page.hpp"

namespace tandem {
namespace {

// `before`: sizes of the dimensions before the blocks', and what they mean.
DType check(const View& pages, const AttentionShape& shape, Sizes before,
            const std::string& meaning) {
    const std::size_t at = before.size();
    const auto expect = [&](const Sizes& page, const std::string& page_meaning) {
        pages.require_dimensions(at + 1 + page.size(),
                                 "[" + meaning + "num_blocks, " + page_meaning + "]");
        Sizes expected = before;
        expected.push_back(pages.shape()[at]);
        expected.insert(expected.end(), page.begin(), page.end());
        pages.require_contiguous().require_shape(expected);
    };
    if (shape.code_bits == 0) {
        expect({2, shape.kv_heads, shape.block_size, shape.head_dim},
               "2, kv_heads, block_size, head_dim");
        return pages.page_type();
    }
    const QuantizedPage layout{shape.code_bits, shape.kv_heads, shape.block_size, shape.head_dim};
    layout.check();
    expect({layout.page_bytes()}, "page_bytes");
    pages.require_bytes().require_alignment(2);  // of scales
    return shape.code_bits == 8 ? DType::kInt8 : DType::kInt4;
}

}  // namespace

DType check_pages(const View& pages, const AttentionShape& shape) {
    return check(pages, shape, {}, "");
}

DType check_layers_pages(const View& pages, const AttentionShape& shape, std::int64_t layers) {
    return check(pages, shape, {layers}, "layers, ");
}

}  // namespace tandem

// Pages of one layer as they come from Python.
#pragma once

#include "arrays.hpp"
#include "attention_plan.hpp"
#include "dtype.hpp"

namespace tandem {

// The element type of contiguous pages: floats [num_blocks, 2, kv_heads, block_size, head_dim], or
// uint8 [num_blocks, page_bytes] where the shape has code bits (quantized_page.hpp).
//
// Throws std::invalid_argument if they are not of that shape, or the shape cannot be quantized.
DType check_pages(const View& pages, const AttentionShape& shape);

// Likewise of so many layers' pages, [layers, ...].
DType check_layers_pages(const View& pages, const AttentionShape& shape, std::int64_t layers);

}  // namespace tandem

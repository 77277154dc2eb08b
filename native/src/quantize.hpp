// Float to code and back, group by group (quantized_page.hpp); means what `tandem.quant.kv_format`
// means, bit for bit.
#pragma once

#include <cstdint>

#include "quantized_page.hpp"

namespace tandem {

// Quantizes one head's `page.head_dim` values into its codes, and its groups' scales and minima at
// steps of `page.block_size` from `pairs` on.
//
// Scale and minimum are rounded to float16 before codes are computed; values beyond float16 count
// as its largest. A group with an infinity or NaN becomes NaN as a whole: an error stays visible.
void quantize_row(const float* values, const QuantizedPage& page, std::uint8_t* codes,
                  std::uint16_t* pairs);

}  // namespace tandem

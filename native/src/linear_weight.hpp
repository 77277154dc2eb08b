// Weights of linear maps as they lie in memory.
#pragma once

#include <cstdint>

#include "linear_kernel.hpp"

namespace tandem {

// W [outputs, inputs], row after row without gaps; nothing is repacked, so a mapped file will do.
//
// Quantized: w = (q - z) s with unsigned q, in groups along the inputs. kInt8 is a byte each.
// kInt4: of each 32 elements of a row, byte i of 16 holds element i in its low and 16 + i in its
// high half.
struct LinearWeight {
    const void* data;
    WeightType type;
    const std::uint16_t* scales;  // float16 [outputs, inputs / group]; quantized only, as are:
    const std::uint8_t* zeros;    // [outputs, inputs / group]
    int group;                    // 32, 64 or 128
    const float* bias;            // [outputs], or null
    int outputs;
    int inputs;
};

constexpr bool is_quantized(WeightType type) { return type >= WeightType::kInt8; }

// Bytes of that many weights of a row.
std::int64_t weight_bytes(WeightType type, int elements);

// The weight itself; throws std::invalid_argument if it makes no sense.
const LinearWeight& checked_weight(const LinearWeight& weight);

// Rows first..first + count - 1.
WeightRows weight_rows(const LinearWeight& weight, int first, int count);

}  // namespace tandem

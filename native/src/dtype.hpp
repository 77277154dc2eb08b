// Element types of keys, values and queries; those of a byte and less only of pages: kFloat8 is
// e4m3 (simd/element.hpp), the integer ones are codes (quantized_page.hpp).
#pragma once

#include <cstdint>

namespace tandem {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8, kInt8, kInt4 };

constexpr bool is_quantized(DType type) { return type == DType::kInt8 || type == DType::kInt4; }

// Of a type that is not quantized.
constexpr int element_bytes(DType type) {
    if (type == DType::kFloat8) return 1;
    return type == DType::kFloat32 ? 4 : 2;
}

}  // namespace tandem

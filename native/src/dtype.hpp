// Element types of keys, values and queries; the integer ones only of pages (quantized_page.hpp).
#pragma once

#include <cstdint>

namespace tandem {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kInt8, kInt4 };

constexpr bool is_quantized(DType type) { return type == DType::kInt8 || type == DType::kInt4; }

// Of a type that is not quantized.
constexpr int element_bytes(DType type) { return type == DType::kFloat32 ? 4 : 2; }

}  // namespace tandem

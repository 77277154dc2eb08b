// Element types of keys, values and queries.
#pragma once

#include <cstdint>

namespace tandem {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

constexpr int element_bytes(DType type) { return type == DType::kFloat32 ? 4 : 2; }

}  // namespace tandem

// Between float32 and the narrow types, rounding to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

inline float from_half(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t magnitude = std::uint32_t{bits & 0x7fffu} << 13;
    // Multiplying by 2^112 moves the exponent's bias and makes subnormals normal.
    std::uint32_t wide = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    if (magnitude >= 0x0f800000u) wide |= 0x7f800000u;  // infinities and NaN
    return std::bit_cast<float>(wide | sign);
}

inline float from_bfloat(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
    if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 2^16 and more
    if (magnitude < 0x38800000u) {  // subnormal: adding 1/2 lets the processor round at 2^-24
        const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
        return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) & 0xffffu);
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return sign | static_cast<std::uint16_t>((magnitude - (112u << 23)) >> 13);
}

inline std::uint16_t to_bfloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_float8(std::uint8_t code) {
    const std::uint32_t sign = std::uint32_t{code & 0x80u} << 24;
    const std::uint32_t magnitude = std::uint32_t{code & 0x7fu} << 20;
    std::uint32_t wide = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p120f);
    if (magnitude == 0x07f00000u) wide = 0x7fc00000u;  // NaN
    return std::bit_cast<float>(wide | sign);
}

// Beyond the largest number, 448, it is that; infinities become NaN: an error stays visible.
inline std::uint8_t to_float8(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80u);
    std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return sign | 0x7fu;  // infinities and NaN
    if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448 and more
    if (magnitude < 0x3c800000u) {  // subnormal: adding 2^14 lets the processor round at 2^-9
        const float rounded = std::bit_cast<float>(magnitude) + 0x1p14f;
        return sign | static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(rounded) & 0xffu);
    }
    magnitude += 0x7ffffu + (magnitude >> 20 & 1u);
    return sign | static_cast<std::uint8_t>((magnitude - (120u << 23)) >> 20);
}

}  // namespace tandem

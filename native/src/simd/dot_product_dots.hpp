// Sums of products of bytes with the dot products of Armv8.2.
#pragma once

#include "simd/neon.hpp"

namespace tandem::dot_product {

struct Dots {
    using Vec = neon::Vec;
    using Code = std::int8_t;  // of x
    using Sum = int32x4_t;
    using Weights = int8x16_t;
    static constexpr int kStep = 16;    // inputs at a time
    static constexpr int kRows = 3;     // of weights in a tile, and
    static constexpr int kColumns = 4;  // of x: their sums fit the registers
    static constexpr float kOffset =
        128.0f;  // what `load` takes from a weight: the dots are signed

    static Sum zero() { return vdupq_n_s32(0); }
    static Weights load(const Byte* p, int) {
        const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(p));
        return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)));
    }
    static Weights load(const Code* p, int) { return vld1q_s8(p); }
    static Sum add_dots(Sum sum, Weights w, Weights x) { return vdotq_s32(sum, w, x); }
    static Vec::Reg floats(Sum sum) { return (Vec::Reg)vcvtq_f32_s32(sum); }
};

}  // namespace tandem::dot_product

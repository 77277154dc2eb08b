// Sums of products of small whole numbers with NEON, as every AArch64 processor has it.
#pragma once

#include "simd/neon.hpp"

namespace tandem::neon {

struct Dots {
    using Vec = neon::Vec;
    using Code = std::int16_t;  // of x
    using Sum = int32x4_t;
    using Weights = int16x8_t;
    static constexpr int kStep = 8;         // inputs at a time
    static constexpr int kRows = 3;         // of weights in a tile, and
    static constexpr int kColumns = 4;      // of x: their sums fit the registers
    static constexpr float kOffset = 0.0f;  // what `load` takes from a weight

    static Sum zero() { return vdupq_n_s32(0); }
    static Weights load(const Byte* p, int) {
        return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p))));
    }
    static Weights load(const Code* p, int) { return vld1q_s16(p); }
    static Sum add_dots(Sum sum, Weights w, Weights x) {
        return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(w), vget_low_s16(x)), w, x);
    }
    static Vec::Reg floats(Sum sum) { return (Vec::Reg)vcvtq_f32_s32(sum); }
};

}  // namespace tandem::neon

// Four floats with NEON, as every AArch64 processor has it.
//
// What the compiler's own vectors already turn into one instruction is taken from there.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "simd/element.hpp"
#include "simd/portable.hpp"

namespace tandem::neon {

struct Vec : portable::Vec {
    static constexpr int kColumns = 4;  // of 32 registers, sixteen hold sums

    using portable::Vec::load;

    static Reg fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
    static Reg max(Reg a, Reg b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // b if one is NaN

    static Reg load(const Half* p) {
        float16x4_t half;
        std::memcpy(&half, p, sizeof half);
        return vcvt_f32_f16(half);
    }

    template <class T>
    static Reg load_part(const T* p, int count) {
        T whole[kWidth] = {};
        std::memcpy(whole, p, sizeof(T) * count);
        return load(whole);
    }

    static float sum(Reg r) { return vaddvq_f32(r); }

    // Leaves x's fraction in -0.5..0.5 and returns 2 to the rest, 0 below 2^-126.
    static Reg split_exponent(Reg& x) {
        const Reg low = broadcast(-126.0f);
        const uint32x4_t drop = vcltq_f32(x, low);  // false for NaN
        const Reg bounded = vbslq_f32(drop, low, x);
        const Reg whole = vrndnq_f32(bounded);
        x = bounded - whole;
        const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(whole), vdupq_n_s32(127));
        const uint32x4_t power = vreinterpretq_u32_s32(vshlq_n_s32(exponent, 23));
        return vreinterpretq_f32_u32(vbicq_u32(power, drop));
    }

    // rows[4] to one vector of their sums.
    static Reg sum_rows(const Reg* rows) {
        return vpaddq_f32(vpaddq_f32(rows[0], rows[1]), vpaddq_f32(rows[2], rows[3]));
    }
};

}  // namespace tandem::neon

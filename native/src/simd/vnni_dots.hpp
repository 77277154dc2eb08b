// Sums of products of bytes with AVX-512's VNNI.
#pragma once

#include "simd/avx512.hpp"

namespace tandem::vnni {

struct Dots {
    using Vec = avx512::Vec;
    using Code = std::int8_t;  // of x
    using Sum = __m512i;
    using Weights = __m512i;
    static constexpr int kStep = 64;        // inputs at a time
    static constexpr int kRows = 3;         // of weights in a tile, and
    static constexpr int kColumns = 4;      // of x: their sums fit the registers
    static constexpr float kOffset = 0.0f;  // what `load` takes from a weight

    static Sum zero() { return _mm512_setzero_si512(); }
    template <class T>
    static Weights load(const T* p, int left) {  // 32, or more than there is room for
        const __mmask64 present = left < kStep ? ~__mmask64{0} >> 32 : ~__mmask64{0};
        return _mm512_maskz_loadu_epi8(present, p);
    }
    static Sum add_dots(Sum sum, Weights w, Weights x) { return _mm512_dpbusd_epi32(sum, w, x); }
    static Vec::Reg floats(Sum sum) { return _mm512_cvtepi32_ps(sum); }
};

}  // namespace tandem::vnni

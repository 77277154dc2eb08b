// Sums of products of small whole numbers with AVX2.
#pragma once

#include "simd/avx2.hpp"

namespace tandem::avx2 {

// In 16 bits: products of two bytes each, in pairs, would not fit the 16 bits of `maddubs`.
struct Dots {
    using Vec = avx2::Vec;
    using Code = std::int16_t;  // of x
    using Sum = __m256i;
    using Weights = __m256i;
    static constexpr int kStep = 16;        // inputs at a time
    static constexpr int kRows = 2;         // of weights in a tile, and
    static constexpr int kColumns = 3;      // of x: their sums fit the registers
    static constexpr float kOffset = 0.0f;  // what `load` takes from a weight

    static Sum zero() { return _mm256_setzero_si256(); }
    static Weights load(const Byte* p, int) {
        return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static Weights load(const Code* p, int) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static Sum add_dots(Sum sum, Weights w, Weights x) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
    }
    static Vec::Reg floats(Sum sum) { return _mm256_cvtepi32_ps(sum); }
};

}  // namespace tandem::avx2

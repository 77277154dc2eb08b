// Stands in front of the compiler's own header where AVX-512 is emulated: the sources of that
// instruction set then call SIMDe's functions (https://github.com/simd-everywhere/simde, 0.8.2 or
// later) of the same names. Lanes, masks and rounding are computed as Intel's Intrinsics Guide
// says; which instructions a compiler would choose, and how fast they are, is not seen.
#pragma once

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace tandem_emulated {

// Masked loads and stores touch the memory of chosen lanes only; SIMDe's touch all of it.
template <class Vector, class Element, class Mask>
inline Vector load_chosen(Mask chosen, const void* memory) {
    constexpr int kLanes = sizeof(Vector) / sizeof(Element);
    Element lanes[kLanes] = {};
    for (int i = 0; i < kLanes; ++i)
        if (chosen >> i & 1)
            __builtin_memcpy(lanes + i, static_cast<const char*>(memory) + i * sizeof(Element),
                             sizeof(Element));
    Vector loaded;
    __builtin_memcpy(&loaded, lanes, sizeof loaded);
    return loaded;
}

inline void store_chosen(void* memory, simde__mmask16 chosen, simde__m512 vector) {
    float lanes[16];
    __builtin_memcpy(lanes, &vector, sizeof lanes);
    for (int i = 0; i < 16; ++i)
        if (chosen >> i & 1)
            __builtin_memcpy(static_cast<char*>(memory) + i * sizeof(float), lanes + i,
                             sizeof(float));
}

// SIMDe 0.8.2 lacks those below.

// Zero-extends sixteen bytes to 32 bits each.
inline simde__m512i widen_bytes(simde__m128i vector) {
    unsigned char bytes[16];
    __builtin_memcpy(bytes, &vector, sizeof bytes);
    int lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = bytes[i];
    simde__m512i widened;
    __builtin_memcpy(&widened, lanes, sizeof widened);
    return widened;
}

// Adds the upper half to the lower one until one lane is left.
inline float sum_lanes(simde__m512 vector) {
    float lanes[16];
    __builtin_memcpy(lanes, &vector, sizeof lanes);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

}  // namespace tandem_emulated

#undef _mm512_maskz_loadu_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm_maskz_loadu_epi8
#undef _mm512_maskz_loadu_epi8
#undef _mm512_mask_storeu_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_reduce_add_ps
#define _mm512_maskz_loadu_ps tandem_emulated::load_chosen<simde__m512, float>
#define _mm256_maskz_loadu_epi16 tandem_emulated::load_chosen<simde__m256i, short>
#define _mm_maskz_loadu_epi8 tandem_emulated::load_chosen<simde__m128i, char>
#define _mm512_maskz_loadu_epi8 tandem_emulated::load_chosen<simde__m512i, char>
#define _mm512_mask_storeu_ps tandem_emulated::store_chosen
#define _mm512_cvtepu8_epi32 tandem_emulated::widen_bytes
#define _mm512_reduce_add_ps tandem_emulated::sum_lanes

// Eight floats with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "simd/element.hpp"

namespace tandem::avx2 {

struct Vec {
    static constexpr int kWidth = 8;
    static constexpr int kLanes = 2;
    static constexpr int kColumns = 2;

    using Reg = __m256;
    using Ints = __m256i;

    static Reg zero() { return _mm256_setzero_ps(); }
    static Reg broadcast(float x) { return _mm256_set1_ps(x); }
    static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
    static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
    static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
    static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
    static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
    static Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
    static Reg copy_sign(Reg size, Reg sign) {
        const Reg mask = _mm256_set1_ps(-0.0f);
        return _mm256_or_ps(_mm256_andnot_ps(mask, size), _mm256_and_ps(mask, sign));
    }

    static Reg load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, Reg r) { _mm256_storeu_ps(p, r); }
    static Reg load(const Half* p) { return _mm256_cvtph_ps(load_bits(p)); }
    static Reg load(const BFloat* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bits(p)), 16));
    }

    // As float16, of which the numbers are 2^-8 of these.
    static Reg load(const Float8* p) {
        const __m128i code =
            _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
        // widened with its sign, which the shift leaves in bit 15, and in bit 14
        const __m128i half = _mm_and_si128(_mm_slli_epi16(code, 7), _mm_set1_epi16(~0x4000));
        // of all numbers, one more than NaN's alone goes over into bit 14: all of the exponent
        const __m128i next = _mm_add_epi16(half, _mm_set1_epi16(0x80));
        const __m128i nan = _mm_and_si128(next, _mm_set1_epi16(0x4000));
        return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256.0f));
    }

    static Reg load(const Byte* p) { return to_floats(load_bytes(p)); }
    static void load_nibbles(const Byte* p, Reg& low, Reg& high) {
        const __m256i both = load_bytes(p);
        low = to_floats(_mm256_and_si256(both, _mm256_set1_epi32(15)));
        high = to_floats(_mm256_srli_epi32(both, 4));
    }
    static Reg broadcast(const Half* p) { return _mm256_cvtph_ps(_mm_set1_epi16(p->bits)); }

    // kWidth lanes of kBytes each, widened to 32 bits.
    template <int kBytes>
    static Ints load_lanes(const unsigned char* p) {
        static_assert(kBytes == 4 || kBytes == 2);
        if constexpr (kBytes == 4)
            return _mm256_loadu_si256(reinterpret_cast<const Ints*>(p));
        else
            return _mm256_cvtepu16_epi32(load_bits(p));
    }
    // kBits of each lane from kShift on, times 2^kShift; unscaled if they are the topmost.
    template <int kShift, int kBits>
    static Reg field(Ints lanes) {
        if constexpr (kShift + kBits == 32)
            return _mm256_cvtepi32_ps(_mm256_srli_epi32(lanes, kShift));
        else
            return _mm256_cvtepi32_ps(
                _mm256_and_si256(lanes, _mm256_set1_epi32(((1 << kBits) - 1) << kShift)));
    }
    // Four 32-bit words at `at` of each of kWidth rows: columns[i] is word i of all rows.
    static void load_columns(const unsigned char* const* rows, int at, Ints (&columns)[4]) {
        Ints four[4];
        for (int i = 0; i < 4; ++i)
            four[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_bits(rows[i] + at)),
                                              load_bits(rows[i + 4] + at), 1);
        const Ints a = _mm256_unpacklo_epi32(four[0], four[1]);
        const Ints b = _mm256_unpacklo_epi32(four[2], four[3]);
        const Ints c = _mm256_unpackhi_epi32(four[0], four[1]);
        const Ints d = _mm256_unpackhi_epi32(four[2], four[3]);
        columns[0] = _mm256_unpacklo_epi64(a, b);
        columns[1] = _mm256_unpackhi_epi64(a, b);
        columns[2] = _mm256_unpacklo_epi64(c, d);
        columns[3] = _mm256_unpackhi_epi64(c, d);
    }

    template <class T>
    static Reg load_part(const T* p, int count) {
        T whole[kWidth] = {};
        std::memcpy(whole, p, sizeof(T) * count);
        return load(whole);
    }

    static void store_part(float* p, Reg r, int count) {
        float whole[kWidth];
        store(whole, r);
        std::memcpy(p, whole, sizeof(float) * count);
    }

    // The upper twelve of 24 bits of each fraction.
    static Reg coarse(Reg r) {
        return _mm256_and_ps(r, _mm256_castsi256_ps(_mm256_set1_epi32(~0xfff)));
    }

    static float sum(Reg r) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps(r, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
    static float max_of(Reg r) {
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps(r, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    }

    // Leaves x's fraction in -0.5..0.5 and returns 2 to the rest, 0 below 2^-126.
    static Reg split_exponent(Reg& x) {
        const Reg low = _mm256_set1_ps(-126.0f);
        const Reg keep = _mm256_cmp_ps(x, low, _CMP_NLT_UQ);  // true for NaN
        const Reg bounded = _mm256_max_ps(low, x);            // NaN stays
        const Reg whole = _mm256_round_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        x = _mm256_sub_ps(bounded, whole);
        const __m256i n = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
        return _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(n, 23)), keep);
    }

    // rows[token * 2 + lane], four tokens, to their sums: lane's four tokens side by side.
    static Reg sum_rows(const Reg* rows) {
        Reg token[4];
        for (int i = 0; i < 4; ++i) {
            const Reg a = rows[i * 2], b = rows[i * 2 + 1];
            token[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20),
                                     _mm256_permute2f128_ps(a, b, 0x31));
        }
        const Reg u = _mm256_add_ps(_mm256_unpacklo_ps(token[0], token[1]),
                                    _mm256_unpackhi_ps(token[0], token[1]));
        const Reg v = _mm256_add_ps(_mm256_unpacklo_ps(token[2], token[3]),
                                    _mm256_unpackhi_ps(token[2], token[3]));
        return _mm256_add_ps(_mm256_shuffle_ps(u, v, 0x44), _mm256_shuffle_ps(u, v, 0xEE));
    }
    // The sums of four vectors, side by side.
    static void sum_four(const Reg* rows, float* sums) {
        const Reg pairs =
            _mm256_hadd_ps(_mm256_hadd_ps(rows[0], rows[1]), _mm256_hadd_ps(rows[2], rows[3]));
        _mm_storeu_ps(sums,
                      _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
    }
    static void store_lane(float* p, Reg r, int lane) {
        _mm_storeu_ps(p, lane == 0 ? _mm256_castps256_ps128(r) : _mm256_extractf128_ps(r, 1));
    }

  private:
    template <class T>
    static __m128i load_bits(const T* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    static __m256i load_bytes(const Byte* p) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }
    static Reg to_floats(__m256i r) { return _mm256_cvtepi32_ps(r); }
};

}  // namespace tandem::avx2

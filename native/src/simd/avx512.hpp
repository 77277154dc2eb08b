// Sixteen floats with AVX-512 (F, BW, VL, DQ).
#pragma once

#include <immintrin.h>

#include "simd/element.hpp"

namespace tandem::avx512 {

struct Vec {
    static constexpr int kWidth = 16;
    static constexpr int kLanes = 4;
    static constexpr int kColumns = 4;

    using Reg = __m512;
    using Ints = __m512i;

    static Reg zero() { return _mm512_setzero_ps(); }
    static Reg broadcast(float x) { return _mm512_set1_ps(x); }
    static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
    static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
    static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
    static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
    static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
    static Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
    static Reg copy_sign(Reg size, Reg sign) {
        const Reg mask = _mm512_set1_ps(-0.0f);
        return _mm512_or_ps(_mm512_andnot_ps(mask, size), _mm512_and_ps(mask, sign));
    }

    static Reg load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, Reg r) { _mm512_storeu_ps(p, r); }
    static Reg load(const Half* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
    }
    static Reg load(const BFloat* p) { return shift(_mm256_loadu_si256((const __m256i*)p)); }

    static Reg load(const Float8* p) {
        return from_float8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }

    static Reg load(const Byte* p) { return to_floats(load_bytes(p)); }
    static void load_nibbles(const Byte* p, Reg& low, Reg& high) {
        const __m512i both = load_bytes(p);
        low = to_floats(_mm512_and_si512(both, _mm512_set1_epi32(15)));
        high = to_floats(_mm512_srli_epi32(both, 4));
    }
    static Reg broadcast(const Half* p) { return _mm512_cvtph_ps(_mm256_set1_epi16(p->bits)); }

    static Reg load_part(const float* p, int count) {
        return _mm512_maskz_loadu_ps(first(count), p);
    }
    static Reg load_part(const Half* p, int count) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), p));
    }
    static Reg load_part(const BFloat* p, int count) {
        return shift(_mm256_maskz_loadu_epi16(first(count), p));
    }
    static Reg load_part(const Float8* p, int count) {
        return from_float8(_mm_maskz_loadu_epi8(first(count), p));
    }
    static Reg load_part(const Byte* p, int count) {
        return to_floats(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(count), p)));
    }

    static void store_part(float* p, Reg r, int count) {
        _mm512_mask_storeu_ps(p, first(count), r);
    }

    // The upper twelve of 24 bits of each fraction.
    static Reg coarse(Reg r) {
        return _mm512_and_ps(r, _mm512_castsi512_ps(_mm512_set1_epi32(~0xfff)));
    }

    // kWidth lanes of kBytes each, widened to 32 bits.
    template <int kBytes>
    static Ints load_lanes(const unsigned char* p) {
        static_assert(kBytes == 4 || kBytes == 2 || kBytes == 1);
        if constexpr (kBytes == 4)
            return _mm512_loadu_si512(p);
        else if constexpr (kBytes == 2)
            return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
        else
            return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
    }
    // kBits of each lane from kShift on, times 2^kShift; unscaled if they are the topmost.
    template <int kShift, int kBits>
    static Reg field(Ints lanes) {
        if constexpr (kShift + kBits == 32)
            return _mm512_cvtepi32_ps(_mm512_srli_epi32(lanes, kShift));
        else
            return _mm512_cvtepi32_ps(
                _mm512_and_si512(lanes, _mm512_set1_epi32(((1 << kBits) - 1) << kShift)));
    }
    // Four 32-bit words at `at` of each of kWidth rows: columns[i] is word i of all rows.
    static void load_columns(const unsigned char* const* rows, int at, Ints (&columns)[4]) {
        Ints four[4];
        for (int i = 0; i < 4; ++i) {
            const auto row = [&](int j) {
                return _mm_loadu_si128((const __m128i*)(rows[i + 4 * j] + at));
            };
            four[i] = _mm512_castsi128_si512(row(0));
            four[i] = _mm512_inserti32x4(four[i], row(1), 1);
            four[i] = _mm512_inserti32x4(four[i], row(2), 2);
            four[i] = _mm512_inserti32x4(four[i], row(3), 3);
        }
        const Ints a = _mm512_unpacklo_epi32(four[0], four[1]);
        const Ints b = _mm512_unpacklo_epi32(four[2], four[3]);
        const Ints c = _mm512_unpackhi_epi32(four[0], four[1]);
        const Ints d = _mm512_unpackhi_epi32(four[2], four[3]);
        columns[0] = _mm512_unpacklo_epi64(a, b);
        columns[1] = _mm512_unpackhi_epi64(a, b);
        columns[2] = _mm512_unpacklo_epi64(c, d);
        columns[3] = _mm512_unpackhi_epi64(c, d);
    }

    static float sum(Reg r) { return _mm512_reduce_add_ps(r); }
    static float max_of(Reg r) { return _mm512_reduce_max_ps(r); }

    // Leaves x's fraction in -0.5..0.5 and returns 2 to the rest, 0 below 2^-126.
    static Reg split_exponent(Reg& x) {
        const Reg low = _mm512_set1_ps(-126.0f);
        const __mmask16 keep = _mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ);  // true for NaN
        const Reg bounded = _mm512_max_ps(low, x);                       // NaN stays
        const Reg whole =
            _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        x = _mm512_sub_ps(bounded, whole);
        return _mm512_maskz_scalef_ps(keep, _mm512_set1_ps(1.0f), whole);
    }

    // rows[token * 4 + lane], four tokens, to their sums: lane's four tokens side by side.
    static Reg sum_rows(const Reg* rows) {
        Reg token[4];
        for (int i = 0; i < 4; ++i) {
            const Reg* r = rows + i * 4;
            const Reg x = _mm512_add_ps(_mm512_shuffle_f32x4(r[0], r[1], 0x44),
                                        _mm512_shuffle_f32x4(r[0], r[1], 0xEE));
            const Reg y = _mm512_add_ps(_mm512_shuffle_f32x4(r[2], r[3], 0x44),
                                        _mm512_shuffle_f32x4(r[2], r[3], 0xEE));
            token[i] =
                _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
        }
        const Reg u = _mm512_add_ps(_mm512_unpacklo_ps(token[0], token[1]),
                                    _mm512_unpackhi_ps(token[0], token[1]));
        const Reg v = _mm512_add_ps(_mm512_unpacklo_ps(token[2], token[3]),
                                    _mm512_unpackhi_ps(token[2], token[3]));
        return _mm512_add_ps(_mm512_shuffle_ps(u, v, 0x44), _mm512_shuffle_ps(u, v, 0xEE));
    }
    static void store_lane(float* p, Reg r, int lane) {
        switch (lane) {  // constant after unrolling
            case 0:
                return _mm_storeu_ps(p, _mm512_castps512_ps128(r));
            case 1:
                return _mm_storeu_ps(p, _mm512_extractf32x4_ps(r, 1));
            case 2:
                return _mm_storeu_ps(p, _mm512_extractf32x4_ps(r, 2));
            default:
                return _mm_storeu_ps(p, _mm512_extractf32x4_ps(r, 3));
        }
    }

  private:
    static __m512i load_bytes(const Byte* p) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static Reg to_floats(__m512i r) { return _mm512_cvtepi32_ps(r); }
    // As float16, of which the numbers are 2^-8 of these.
    static Reg from_float8(__m128i bytes) {
        const __m256i code = _mm256_cvtepi8_epi16(bytes);
        // widened with its sign, which the shift leaves in bit 15, and in bit 14
        const __m256i half =
            _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(~0x4000));
        // of all numbers, one more than NaN's alone goes over into bit 14: all of the exponent
        const __m256i next = _mm256_add_epi16(half, _mm256_set1_epi16(0x80));
        const __m256i nan = _mm256_and_si256(next, _mm256_set1_epi16(0x4000));
        return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, nan)), _mm512_set1_ps(256.0f));
    }
    static __mmask16 first(int count) { return static_cast<__mmask16>((1u << count) - 1); }
    static Reg shift(__m256i bits) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
};

}  // namespace tandem::avx512

// Four floats in the compiler's own vectors: what every 64-bit processor has (SSE2, NEON).
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/element.hpp"

namespace tandem::portable {

struct Vec {
    static constexpr int kWidth = 4;
    static constexpr int kLanes = 1;    // groups of four
    static constexpr int kColumns = 2;  // vectors per query in the weighted sum of four queries

    typedef float Reg __attribute__((vector_size(16)));
    typedef std::uint32_t Bits __attribute__((vector_size(16)));
    typedef std::int32_t Ints __attribute__((vector_size(16)));
    typedef std::uint16_t Halves __attribute__((vector_size(8)));
    typedef std::uint8_t Bytes __attribute__((vector_size(4)));

    static Reg zero() { return Reg{0, 0, 0, 0}; }
    static Reg broadcast(float x) { return Reg{x, x, x, x}; }
    static Reg fma(Reg a, Reg b, Reg c) { return a * b + c; }
    static Reg mul(Reg a, Reg b) { return a * b; }
    static Reg add(Reg a, Reg b) { return a + b; }
    static Reg sub(Reg a, Reg b) { return a - b; }
    static Reg max(Reg a, Reg b) { return a > b ? a : b; }
    static Reg div(Reg a, Reg b) { return a / b; }
    static Reg copy_sign(Reg size, Reg sign) {
        return (Reg)(((Bits)size & 0x7fffffffu) | ((Bits)sign & 0x80000000u));
    }

    static Reg load(const float* p) {
        Reg r;
        std::memcpy(&r, p, sizeof r);
        return r;
    }
    static void store(float* p, Reg r) { std::memcpy(p, &r, sizeof r); }

    static Reg load(const Half* p) {
        const Bits h = widen(p);
        const Bits sign = (h & 0x8000u) << 16;
        const Bits magnitude = (h & 0x7fffu) << 13;
        // Multiplying by 2^112 moves the exponent's bias and makes subnormals normal.
        Bits bits = (Bits)((Reg)magnitude * 0x1p112f);
        bits |= (Bits)(magnitude >= 0x0f800000u) & 0x7f800000u;  // infinities and NaN
        return (Reg)(bits | sign);
    }
    static Reg load(const BFloat* p) { return (Reg)(widen(p) << 16); }
    static Reg load(const Float8* p) {
        const Bits code = (Bits)load_bytes(p);
        const Bits magnitude = (code & 0x7fu) << 20;
        // Multiplying by 2^120 moves the exponent's bias and makes subnormals normal.
        Bits bits = (Bits)((Reg)magnitude * 0x1p120f);
        bits |= (Bits)(magnitude == 0x07f00000u) & 0x7fc00000u;  // NaN
        return (Reg)(bits | (code & 0x80u) << 24);
    }

    static Reg load(const Byte* p) { return __builtin_convertvector(load_bytes(p), Reg); }
    static void load_nibbles(const Byte* p, Reg& low, Reg& high) {
        const Ints both = load_bytes(p);
        low = __builtin_convertvector(both & 15, Reg);
        high = __builtin_convertvector(both >> 4, Reg);
    }
    static Reg broadcast(const Half* p) {
        const Half copies[kWidth] = {*p, *p, *p, *p};
        return load(copies);
    }

    // kWidth lanes of kBytes each.
    template <int kBytes>
    static Ints load_lanes(const unsigned char* p) {
        static_assert(kBytes == 4);
        Ints lanes;
        std::memcpy(&lanes, p, sizeof lanes);
        return lanes;
    }
    // kBits of each lane from kShift on, times 2^kShift; unscaled if they are the topmost.
    template <int kShift, int kBits>
    static Reg field(Ints lanes) {
        if constexpr (kShift + kBits == 32)
            return __builtin_convertvector((Ints)((Bits)lanes >> kShift), Reg);
        else
            return __builtin_convertvector(lanes & (((1 << kBits) - 1) << kShift), Reg);
    }
    // Four 32-bit words at `at` of each of kWidth rows: columns[i] is word i of all rows.
    static void load_columns(const unsigned char* const* rows, int at, Ints (&columns)[4]) {
        Ints row[4];
        for (int i = 0; i < 4; ++i) std::memcpy(&row[i], rows[i] + at, sizeof row[i]);
        for (int i = 0; i < 4; ++i) columns[i] = Ints{row[0][i], row[1][i], row[2][i], row[3][i]};
    }

    template <class T>
    static Reg load_part(const T* p, int count) {
        T whole[kWidth] = {};
        std::memcpy(whole, p, sizeof(T) * count);
        return load(whole);
    }

    static void store_part(float* p, Reg r, int count) {
        std::memcpy(p, &r, sizeof(float) * count);
    }

    // The upper twelve of 24 bits of each fraction.
    static Reg coarse(Reg r) { return (Reg)((Bits)r & ~0xfffu); }

    static float sum(Reg r) { return (r[0] + r[2]) + (r[1] + r[3]); }
    static float max_of(Reg r) {
        const float a = r[0] > r[1] ? r[0] : r[1];
        const float b = r[2] > r[3] ? r[2] : r[3];
        return a > b ? a : b;
    }

    static Reg floor_to_int(Reg x, Ints& n) {
        n = __builtin_convertvector(x, Ints);  // towards zero
        Reg down = __builtin_convertvector(n, Reg);
        const Ints above = (Ints)(down > x);  // -1 where it was rounded up
        n += above;
        return __builtin_convertvector(n, Reg);
    }

    // x * 2^n for n of at least -126; 0 below.
    static Reg split_exponent(Reg& x) {
        const Reg low = broadcast(-126.0f);
        const Ints keep = ~(Ints)(x < low);  // true for NaN
        const Reg bounded = x < low ? low : x;
        Ints n;
        const Reg whole = floor_to_int(bounded + 0.5f, n);
        x = bounded - whole;
        return (Reg)(((n + 127) << 23) & keep);
    }

    // rows[4] to one vector of their sums.
    static Reg sum_rows(const Reg* rows) {
        return Reg{sum(rows[0]), sum(rows[1]), sum(rows[2]), sum(rows[3])};
    }
    static void store_lane(float* p, Reg r, int) { store(p, r); }

  private:
    template <class T>
    static Ints load_bytes(const T* p) {
        Bytes b;
        std::memcpy(&b, p, sizeof b);
        return __builtin_convertvector(b, Ints);
    }
    template <class T>
    static Bits widen(const T* p) {
        Halves h;
        std::memcpy(&h, p, sizeof h);
        return __builtin_convertvector(h, Bits);
    }
};

}  // namespace tandem::portable

// Sums of products of small whole numbers in the compiler's own vectors.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/portable.hpp"

namespace tandem::portable {

struct Dots {
    using Vec = portable::Vec;
    using Code = std::int16_t;  // of x
    using Sum = Vec::Ints;
    using Weights = Vec::Ints;
    static constexpr int kStep = 4;         // inputs at a time
    static constexpr int kRows = 2;         // of weights in a tile, and
    static constexpr int kColumns = 3;      // of x: their sums fit the registers
    static constexpr float kOffset = 0.0f;  // what `load` takes from a weight

    static Sum zero() { return Sum{}; }
    static Weights load(const Byte* p, int) {
        Vec::Bytes bytes;
        std::memcpy(&bytes, p, sizeof bytes);
        return __builtin_convertvector(bytes, Weights);
    }
    static Weights load(const Code* p, int) {
        typedef Code Codes __attribute__((vector_size(8)));
        Codes codes;
        std::memcpy(&codes, p, sizeof codes);
        return __builtin_convertvector(codes, Weights);
    }
    static Sum add_dots(Sum sum, Weights w, Weights x) { return sum + w * x; }
    static Vec::Reg floats(Sum sum) { return __builtin_convertvector(sum, Vec::Reg); }
};

}  // namespace tandem::portable

// How codes lie in lanes, and their groups' scales and minima as vectors.
#pragma once

#include "attention_kernel.hpp"
#include "code_format.hpp"
#include "simd/element.hpp"

namespace tandem {
namespace {

// Where codes begin, and scales of the first group; minima follow, and the other groups' rows.
struct CodePlace {
    const unsigned char* codes;
    const Half* pairs;
};

// One group of elements of a number of tokens.
struct CodeGroup {
    const unsigned char* codes;
    int row_bytes;
    int count;
    int index;
    const Half* scales;
    const Half* minima;

    CodeGroup from(int token) const {
        return {codes + static_cast<long>(token) * row_bytes,
                row_bytes,
                count - token,
                index,
                scales + token,
                minima + token};
    }
};

// Calls work.template operator()<0>() ... <kCount - 1>().
template <int kCount, int kDone = 0, class Work>
inline __attribute__((always_inline)) void for_each_field(const Work& work) {
    if constexpr (kDone < kCount) {
        work.template operator()<kDone>();
        for_each_field<kCount, kDone + 1>(work);
    }
}

// Which of a row's elements begins at a bit.
template <int kBits>
int element_at(int bit) {
    if (kBits == 8) return bit / 8;
    const int byte = bit / 8;
    return byte / 16 * kCodeRun + byte % 16 + (bit % 8 ? 16 : 0);
}

// Codes in lanes of kLaneBytes; a vector of lanes gives kFields vectors of floats. The size of a
// group is known to the compiler: loops over its words are unrolled, and their sums stay in
// registers.
template <class V, int kBitsPerCode, int kLane, int kElements>
struct CodeFields {
    using Vec = V;
    static constexpr int kBits = kBitsPerCode;
    static constexpr int kLaneBytes = kLane;
    static constexpr int kGroup = kElements;
    static constexpr int kFields = kLaneBytes * 8 / kBits;
    static constexpr int kLoadBytes = kLaneBytes * Vec::kWidth;
    static constexpr int kLoadElements = kFields * Vec::kWidth;

    // A field's value comes out as 2^shift(field) times the code.
    static constexpr int shift(int field) { return (field + 1) * kBits == 32 ? 0 : field * kBits; }
    static constexpr float grown(int field) { return static_cast<float>(1 << shift(field)); }

    template <int kField>
    static inline __attribute__((always_inline)) typename Vec::Reg value(typename Vec::Ints lanes) {
        return Vec::template field<kField * kBits, kBits>(lanes);
    }
};

// Scales or minima of a vector of tokens of which `left` are there; 0 for the others.
template <class Vec>
inline typename Vec::Reg load_tokens(const Half* row, int left) {
    if (left >= Vec::kWidth) return Vec::load(row);
    return left > 0 ? Vec::load_part(row, left) : Vec::zero();
}

}  // namespace
}  // namespace tandem

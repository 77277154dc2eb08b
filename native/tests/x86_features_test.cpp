// Which instruction sets follow from which bits: each that lacks takes away what needs it, and
// nothing else.
#include "x86_features.hpp"

#include <initializer_list>

#include "check.hpp"

namespace {

using namespace tandem;

constexpr X86Words kAll{
    .basic_c = ~0u, .extended_b = ~0u, .extended_c = ~0u, .extended_d = ~0u, .saved = ~0u};

// How many of the four there are, of which each needs those before it.
int count(const X86Words& words) {
    const X86Features found = features_of(words);
    CHECK(!found.avx512 || found.avx2);
    CHECK(!found.vnni || found.avx512);
    CHECK(!found.amx || found.vnni);
    return found.avx2 + found.avx512 + found.vnni + found.amx;
}

void without(std::uint32_t X86Words::* word, std::initializer_list<int> bits, int left) {
    for (const int bit : bits) {
        X86Words words = kAll;
        words.*word &= ~(1u << bit);
        CHECK(count(words) == left);
    }
}

}  // namespace

int main() {
    CHECK(count(kAll) == 4);
    CHECK(count({}) == 0);
    without(&X86Words::extended_d, {22, 24}, 3);          // AMX-BF16, AMX-TILE
    without(&X86Words::saved, {17, 18}, 3);               // tiles' shapes, tiles
    without(&X86Words::extended_c, {11}, 2);              // AVX512-VNNI
    without(&X86Words::extended_b, {16, 17, 30, 31}, 1);  // AVX-512 F, DQ, BW, VL
    without(&X86Words::saved, {5, 6, 7}, 1);              // ZMM, and masks
    without(&X86Words::extended_b, {5}, 0);               // AVX2
    without(&X86Words::saved, {1, 2}, 0);                 // XMM, YMM
    without(&X86Words::basic_c, {12, 27, 28, 29}, 0);     // FMA, OSXSAVE, AVX, F16C
    without(&X86Words::extended_d, {25}, 4);              // AMX-INT8, which nothing uses
    CHECK(x86_features().avx2 || !x86_features().amx);
    std::printf("ok\n");
}

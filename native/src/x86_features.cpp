#include "x86_features.hpp"

#include <cpuid.h>

#include <cstdint>

namespace tandem {
namespace {

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

// All zero for a leaf that the processor does not have.
Registers cpuid(unsigned leaf) {
    Registers r;
    __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);
    return r;
}

// Register sets that the operating system saves, XCR0's low half.
std::uint32_t saved_registers() {
    std::uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

constexpr bool has(std::uint32_t word, std::uint32_t bits) { return (word & bits) == bits; }

constexpr std::uint32_t kSavesYmm = 0x06, kSavesZmm = 0xe6;
constexpr std::uint32_t kAvx512 =
    bit_AVX512F | bit_AVX512BW | static_cast<std::uint32_t>(bit_AVX512VL) | bit_AVX512DQ;

}  // namespace

X86Features x86_features() {
    const Registers basic = cpuid(1);
    if (!has(basic.c, bit_OSXSAVE)) return {};
    const std::uint32_t saved = saved_registers();
    const Registers extended = cpuid(7);
    const bool avx2 = has(saved, kSavesYmm) && has(basic.c, bit_AVX | bit_FMA | bit_F16C) &&
                      has(extended.b, bit_AVX2);
    const bool avx512 = avx2 && has(saved, kSavesZmm) && has(extended.b, kAvx512);
    return {avx2, avx512, avx512 && has(extended.c, bit_AVX512VNNI)};
}

}  // namespace tandem

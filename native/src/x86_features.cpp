#include "x86_features.hpp"

#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

constexpr std::uint32_t kSavesYmm = 0x06, kSavesZmm = 0xe6, kSavesTiles = 0x60000;
constexpr std::uint32_t kAvx512 =
    bit_AVX512F | bit_AVX512BW | static_cast<std::uint32_t>(bit_AVX512VL) | bit_AVX512DQ;
constexpr std::uint32_t kAmx = 1u << 22 | 1u << 24;  // AMX-BF16 and AMX-TILE

}  // namespace

X86Features features_of(const X86Words& words) {
    if (!has(words.basic_c, bit_OSXSAVE)) return {};
    const bool avx2 = has(words.saved, kSavesYmm) &&
                      has(words.basic_c, bit_AVX | bit_FMA | bit_F16C) &&
                      has(words.extended_b, bit_AVX2);
    const bool avx512 = avx2 && has(words.saved, kSavesZmm) && has(words.extended_b, kAvx512);
    const bool vnni = avx512 && has(words.extended_c, bit_AVX512VNNI);
    const bool amx = vnni && has(words.saved, kSavesTiles) && has(words.extended_d, kAmx);
    return {avx2, avx512, vnni, amx};
}

X86Features x86_features() {
    const Registers basic = cpuid(1), extended = cpuid(7);
    const std::uint32_t saved = has(basic.c, bit_OSXSAVE) ? saved_registers() : 0;
    return features_of({basic.c, extended.b, extended.c, extended.d, saved});
}

// Linux gives tiles to processes that ask (arch/x86/include/uapi/asm/prctl.h); refused by kernels
// before 5.16, and where a thread's stack for signals is too small for them.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
    return false;
#endif
}

}  // namespace tandem

// What an x86-64 processor has and its operating system saves, by CPUID.
//
// The compilers' own test (__builtin_cpu_supports) answers from a table in their run-time library,
// which not every toolchain fills.
#pragma once

#include <cstdint>

namespace tandem {

struct X86Features {
    bool avx2;    // with FMA and F16C
    bool avx512;  // F, BW, VL, DQ
    bool vnni;    // of AVX-512
    bool amx;     // tiles of bfloat16, beside VNNI
};

// What is said where: CPUID's leaves 1 and 7, and the register sets that the system saves, XCR0.
struct X86Words {
    std::uint32_t basic_c, extended_b, extended_c, extended_d, saved;
};

// `amx`: if the system lets the process have tiles, see `may_use_tiles`.
X86Features features_of(const X86Words& words);

// Of this processor.
X86Features x86_features();

// Asks Linux for tiles, once for all threads of the process: their 8 KiB of each thread are saved
// only from a thread's first use of them on. Call it only where they are to be used, or
// listed.
bool may_use_tiles();

}  // namespace tandem

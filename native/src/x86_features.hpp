// What an x86-64 processor has and its operating system saves, by CPUID.
//
// The compilers' own test (__builtin_cpu_supports) answers from a table in their run-time library,
// which not every toolchain fills.
#pragma once

namespace tandem {

struct X86Features {
    bool avx2;    // with FMA and F16C
    bool avx512;  // F, BW, VL, DQ
    bool vnni;    // of AVX-512
};

X86Features x86_features();

}  // namespace tandem

#include "kernel_set.hpp"

namespace tandem {

const KernelSet& kernel_set(Isa isa) {
    static constexpr KernelSet portable{kPortableAttention, kPortablePrefill, kPortableLinear,
                                        kPortableInteger};
#if defined(__x86_64__)
    static constexpr KernelSet avx2{kAvx2Attention, kAvx2Prefill, kAvx2Linear, kAvx2Integer};
    static constexpr KernelSet avx512{kAvx512Attention, kAvx512Prefill, kAvx512Linear,
                                      kAvx2Integer};
    static constexpr KernelSet avx512vnni{kAvx512Attention, kAvx512Prefill, kAvx512Linear,
                                          kVnniInteger};
#if defined(TANDEM_AMX)
    static constexpr KernelSet amx{kAvx512Attention, kAvx512Prefill, kAmxLinear, kVnniInteger};
    if (isa == Isa::kAmx) return amx;
#endif
    if (isa == Isa::kAvx2) return avx2;
    if (isa == Isa::kAvx512) return avx512;
    if (isa == Isa::kAvx512Vnni) return avx512vnni;
#elif defined(__aarch64__)
    static constexpr KernelSet neon{kNeonAttention, kNeonPrefill, kNeonLinear, kNeonInteger};
    static constexpr KernelSet neondot{kNeonAttention, kNeonPrefill, kNeonLinear,
                                       kDotProductInteger};
    if (isa == Isa::kNeon) return neon;
    if (isa == Isa::kNeonDot) return neondot;
#endif
    (void)isa;
    return portable;
}

}  // namespace tandem

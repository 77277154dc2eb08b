// What stands beside emulated tiles: AVX2's kernels, where AMX's own set has AVX-512's.
#include "kernel_set.hpp"

namespace tandem {

const KernelSet& kernel_set(Isa isa) {
    static constexpr KernelSet portable{kPortableAttention, kPortablePrefill, kPortableLinear,
                                        kPortableInteger};
    static constexpr KernelSet avx2{kAvx2Attention, kAvx2Prefill, kAvx2Linear, kAvx2Integer};
    static constexpr KernelSet amx{kAvx2Attention, kAvx2Prefill, kAmxLinear, kAvx2Integer};
    return isa == Isa::kAmx ? amx : isa == Isa::kAvx2 ? avx2 : portable;
}

}  // namespace tandem

#include "attention_kernel_impl.hpp"
#include "simd/neon.hpp"

namespace tandem {

const AttentionKernels kNeonAttention = make_kernels<neon::Vec>();

}  // namespace tandem

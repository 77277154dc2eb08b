#include "attention_kernel_impl.hpp"
#include "simd/avx2.hpp"

namespace tandem {

const AttentionKernels kAvx2Attention = make_kernels<avx2::Vec>();

}  // namespace tandem

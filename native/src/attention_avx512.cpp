#include "attention_kernel_impl.hpp"
#include "simd/avx512.hpp"

namespace tandem {

const AttentionKernels kAvx512Attention = make_kernels<avx512::Vec>();

}  // namespace tandem

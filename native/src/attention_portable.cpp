#include "attention_kernel_impl.hpp"
#include "simd/portable.hpp"

namespace tandem {

const AttentionKernels kPortableAttention = make_kernels<portable::Vec>();

}  // namespace tandem

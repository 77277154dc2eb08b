#include "linear_kernel_impl.hpp"
#include "simd/avx2.hpp"

namespace tandem {

const LinearKernels kAvx2Linear = make_linear_kernels<avx2::Vec>();

}  // namespace tandem

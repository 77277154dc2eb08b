#include "linear_kernel_impl.hpp"
#include "simd/avx512.hpp"

namespace tandem {

const LinearKernels kAvx512Linear = make_linear_kernels<avx512::Vec>();

}  // namespace tandem

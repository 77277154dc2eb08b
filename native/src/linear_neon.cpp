#include "linear_kernel_impl.hpp"
#include "simd/neon.hpp"

namespace tandem {

const LinearKernels kNeonLinear = make_linear_kernels<neon::Vec>();

}  // namespace tandem

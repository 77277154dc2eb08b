#include "linear_kernel_impl.hpp"
#include "simd/portable.hpp"

namespace tandem {

const LinearKernels kPortableLinear = make_linear_kernels<portable::Vec>();

}  // namespace tandem

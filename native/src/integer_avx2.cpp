#include "linear_integer_impl.hpp"
#include "simd/avx2_dots.hpp"

namespace tandem {

const IntegerKernels kAvx2Integer = make_integer_kernels<avx2::Dots>();

}  // namespace tandem

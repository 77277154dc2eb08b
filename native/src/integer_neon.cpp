#include "linear_integer_impl.hpp"
#include "simd/neon_dots.hpp"

namespace tandem {

const IntegerKernels kNeonInteger = make_integer_kernels<neon::Dots>();

}  // namespace tandem

#include "linear_integer_impl.hpp"
#include "simd/portable_dots.hpp"

namespace tandem {

const IntegerKernels kPortableInteger = make_integer_kernels<portable::Dots>();

}  // namespace tandem

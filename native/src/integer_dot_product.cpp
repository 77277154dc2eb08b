#include "linear_integer_impl.hpp"
#include "simd/dot_product_dots.hpp"

namespace tandem {

const IntegerKernels kDotProductInteger = make_integer_kernels<dot_product::Dots>();

}  // namespace tandem

#include "linear_integer_impl.hpp"
#include "simd/vnni_dots.hpp"

namespace tandem {

const IntegerKernels kVnniInteger = make_integer_kernels<vnni::Dots>();

}  // namespace tandem

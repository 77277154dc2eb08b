#include "linear_amx_impl.hpp"
#include "simd/avx512.hpp"

namespace tandem {

const LinearKernels kAmxLinear = make_tile_kernels<avx512::Vec>();

}  // namespace tandem

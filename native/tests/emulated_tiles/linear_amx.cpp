// AMX's kernels over emulated tiles, the rest of them over AVX2.
#include "linear_amx_impl.hpp"
#include "simd/avx2.hpp"

namespace tandem {

const LinearKernels kAmxLinear = make_tile_kernels<avx2::Vec>();

}  // namespace tandem

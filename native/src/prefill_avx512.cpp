#include "prefill_kernel_impl.hpp"
#include "simd/avx512.hpp"

namespace tandem {

const PrefillKernels kAvx512Prefill = make_prefill<avx512::Vec>();

}  // namespace tandem

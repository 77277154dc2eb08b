#include "prefill_kernel_impl.hpp"
#include "simd/avx2.hpp"

namespace tandem {

const PrefillKernels kAvx2Prefill = make_prefill<avx2::Vec>();

}  // namespace tandem

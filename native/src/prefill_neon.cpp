#include "prefill_kernel_impl.hpp"
#include "simd/neon.hpp"

namespace tandem {

const PrefillKernels kNeonPrefill = make_prefill<neon::Vec>();

}  // namespace tandem

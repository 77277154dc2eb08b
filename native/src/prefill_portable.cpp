#include "prefill_kernel_impl.hpp"
#include "simd/portable.hpp"

namespace tandem {

const PrefillKernels kPortablePrefill = make_prefill<portable::Vec>();

}  // namespace tandem

#include "linear_integer.hpp"

#if defined(__x86_64__)
#include "x86_features.hpp"
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tandem {
namespace {

#if defined(__x86_64__)
bool has_vnni() {
    static const bool has = x86_features().vnni;
    return has;
}
#elif defined(__aarch64__)
bool has_dot_products() {
#if defined(__linux__)
    constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
    static const bool has = getauxval(AT_HWCAP) & kAsimdDp;
    return has;
#else
    return false;
#endif
}
#endif

}  // namespace

const IntegerKernels& integer_kernels(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::kAvx512) return has_vnni() ? kVnniInteger : kAvx2Integer;
    if (isa == Isa::kAvx2) return kAvx2Integer;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return has_dot_products() ? kDotProductInteger : kNeonInteger;
#endif
    (void)isa;
    return kPortableInteger;
}

}  // namespace tandem

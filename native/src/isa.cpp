#include "isa.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#if defined(__x86_64__)
#include "x86_features.hpp"
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tandem {
namespace {

constexpr Isa kAll[] = {Isa::kPortable, Isa::kNeon,       Isa::kNeonDot, Isa::kAvx2,
                        Isa::kAvx512,   Isa::kAvx512Vnni, Isa::kAmx};

#if defined(__aarch64__)
bool has_dot_products() {
#if defined(__linux__)
    constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
    return getauxval(AT_HWCAP) & kAsimdDp;
#else
    return false;
#endif
}
#endif

bool supported(Isa isa) {
#if defined(__x86_64__)
    static const X86Features here = x86_features();
    if (isa == Isa::kAvx2) return here.avx2;
    if (isa == Isa::kAvx512) return here.avx512;
    if (isa == Isa::kAvx512Vnni) return here.vnni;
#if defined(TANDEM_AMX)
    if (isa == Isa::kAmx) {
        static const bool granted = here.amx && may_use_tiles();
        return granted;
    }
#endif
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return true;
    if (isa == Isa::kNeonDot) return has_dot_products();
#endif
    return isa == Isa::kPortable;
}

std::string names(const std::vector<Isa>& isas) {
    std::string text;
    for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
    return text;
}

}  // namespace

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::kAmx:
            return "amx";
        case Isa::kAvx512Vnni:
            return "avx512vnni";
        case Isa::kAvx512:
            return "avx512";
        case Isa::kAvx2:
            return "avx2";
        case Isa::kNeonDot:
            return "neondot";
        case Isa::kNeon:
            return "neon";
        case Isa::kPortable:
            break;
    }
    return "portable";
}

std::vector<Isa> supported_isas() {
    std::vector<Isa> found;
    std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(found), supported);
    return found;
}

Isa choose_isa(const std::string& name) {
    // AMX has run on no processor yet: only those who name it have it, and Linux is asked for tiles
    // on their behalf alone.
    if (name.empty())
        return *std::find_if(std::rbegin(kAll), std::rend(kAll),
                             [](Isa isa) { return isa != Isa::kAmx && supported(isa); });
    for (Isa isa : kAll) {
        if (name != isa_name(isa)) continue;
        if (supported(isa)) return isa;
        throw std::invalid_argument("this processor does not support the instruction set '" + name +
                                    "': choose one of " + names(supported_isas()));
    }
    throw std::invalid_argument("unknown instruction set '" + name + "': choose one of " +
                                names(supported_isas()));
}

}  // namespace tandem

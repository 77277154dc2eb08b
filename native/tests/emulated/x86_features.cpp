// AVX-512 is there where it is emulated (immintrin.h beside this file), on processors with AVX2.
#include "x86_features.hpp"

namespace tandem {

X86Features x86_features() { return {.avx2 = true, .avx512 = true, .vnni = true, .amx = false}; }

bool may_use_tiles() { return false; }

}  // namespace tandem

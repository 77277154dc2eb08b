// AMX is there where its tiles are emulated (immintrin.h beside this file), on processors with
// AVX2.
#include "x86_features.hpp"

namespace tandem {

X86Features x86_features() { return {.avx2 = true, .avx512 = false, .vnni = false, .amx = true}; }

bool may_use_tiles() { return true; }

}  // namespace tandem

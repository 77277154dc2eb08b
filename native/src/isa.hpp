// Which instruction set the kernels run with: the best that the processor has, or the one asked
// for.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// kNeonDot, kAvx512Vnni, kAmx: with dot products of bytes. kAmx: with tiles of bfloat16, too.
enum class Isa { kPortable, kNeon, kNeonDot, kAvx2, kAvx512, kAvx512Vnni, kAmx };

// "portable", "neon", "neondot", "avx2", "avx512", "avx512vnni" or "amx".
const char* isa_name(Isa isa);

// Instruction sets that this library holds and this processor runs, slowest first. Asks Linux for
// tiles where there are any.
std::vector<Isa> supported_isas();

// The instruction set of that name; the best supported one but AMX if the name is empty.
// Throws std::invalid_argument for a name that is unknown or not supported here.
Isa choose_isa(const std::string& name);

}  // namespace tandem

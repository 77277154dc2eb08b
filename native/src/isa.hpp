// Which instruction set the kernels run with: the best that the processor has, or the one asked
// for.
#pragma once

#include <string>
#include <vector>

namespace tandem {

enum class Isa { kPortable, kNeon, kAvx2, kAvx512 };

// "portable", "neon", "avx2" or "avx512".
const char* isa_name(Isa isa);

// Instruction sets that this library holds and this processor runs, slowest first.
std::vector<Isa> supported_isas();

// The instruction set of that name; the best supported one if the name is empty.
// Throws std::invalid_argument for a name that is unknown or not supported here.
Isa choose_isa(const std::string& name);

}  // namespace tandem

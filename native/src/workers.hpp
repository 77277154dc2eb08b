// Who does the work of a call.
#pragma once

#include "isa.hpp"
#include "pool.hpp"

namespace tandem {

// The threads and instruction set that a stage runs with.
struct Workers {
    Pool& pool;
    Isa isa;
};

}  // namespace tandem

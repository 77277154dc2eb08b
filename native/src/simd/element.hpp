// Narrow element types as they lie in memory.
#pragma once

#include <cstdint>

namespace tandem {

struct Half {
    std::uint16_t bits;
};

struct BFloat {
    std::uint16_t bits;
};

// e4m3: a sign, four bits of exponent (bias 7), three of fraction; no infinities, 0x7f is NaN.
struct Float8 {
    std::uint8_t bits;
};

struct Byte {
    std::uint8_t value;
};

}  // namespace tandem

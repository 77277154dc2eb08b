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

struct Byte {
    std::uint8_t value;
};

}  // namespace tandem

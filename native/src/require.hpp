// Conditions that what is given must meet.
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

// Throws std::invalid_argument (ValueError in Python) unless the condition holds.
inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}
inline void require(bool condition, const std::string& message) {
    if (!condition) throw std::invalid_argument(message);
}

}  // namespace tandem

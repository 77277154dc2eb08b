#include "attention_memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

namespace tandem {

Normalised normalise(float max, float weight, const float* sink) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    if (max == kMinusInfinity && weight == 0) return {0.0f, sink ? *sink : kMinusInfinity};
    const auto natural = [](float base, float sum) {
        return (base + std::log2(sum)) * std::numbers::ln2_v<float>;
    };
    if (!sink) return {1.0f / weight, natural(max, weight)};
    const float other = *sink * std::numbers::log2e_v<float>;
    const float base = std::max(max, other);
    const float shrunk = std::exp2(max - base);
    const float total = weight * shrunk + std::exp2(other - base);
    return {shrunk / total, natural(base, total)};
}

void check_scales(float scale, float soft_cap) {
    if (!std::isfinite(scale)) throw std::invalid_argument("scale must be finite");
    if (!std::isfinite(soft_cap) || soft_cap < 0)
        throw std::invalid_argument("soft_cap must be finite and positive, or 0 for none");
}

void check_blocks(std::int32_t max_block, std::int64_t num_blocks) {
    if (max_block >= num_blocks)
        throw std::invalid_argument("block_table names block " + std::to_string(max_block) +
                                    ", but there are " + std::to_string(num_blocks) + " pages");
}

}  // namespace tandem

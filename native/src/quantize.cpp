#include "quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "convert.hpp"

namespace tandem {
namespace {

constexpr float kLargestHalf = 65504.0f;
constexpr std::uint16_t kHalfNan = 0x7e00;
// Added to a float below 2^22, it leaves the integer nearest to it, ties to even, in the last bits.
constexpr float kRounder = 12582912.0f;

struct Pair {
    std::uint16_t scale;
    std::uint16_t minimum;
};

bool all_finite(const float* values, int count) {
    bool finite = true;
    for (int i = 0; i < count; ++i) finite &= std::isfinite(values[i]);
    return finite;
}

Pair quantize_group(const float* values, int count, float levels, std::uint8_t* target) {
    std::memset(target, 0, static_cast<std::size_t>(count));
    if (!all_finite(values, count)) return {kHalfNan, kHalfNan};
    float low = values[0], high = values[0];
    for (int i = 1; i < count; ++i) {
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
    }
    low = std::clamp(low, -kLargestHalf, kLargestHalf);
    high = std::clamp(high, -kLargestHalf, kLargestHalf);
    const std::uint16_t minimum_bits = to_half(low + 0.0f);  // not -0
    const float minimum = from_half(minimum_bits);
    const std::uint16_t scale_bits = to_half(std::max(high - minimum, 0.0f) / levels);
    const float scale = from_half(scale_bits);
    if (scale > 0)
        for (int i = 0; i < count; ++i) {
            const float code = std::clamp((values[i] - minimum) / scale, 0.0f, levels);
            const float rounded = code + kRounder;
            target[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(rounded));
        }
    return {scale_bits, minimum_bits};
}

}  // namespace

void quantize_row(const float* values, const QuantizedPage& page, std::uint8_t* codes,
                  std::uint16_t* pairs) {
    float padded[kMaxCodeDim];
    std::uint8_t wide[kMaxCodeDim];
    const int size = page.group_size(), elements = page.row_elements();
    std::copy_n(values, page.head_dim, padded);
    std::fill(padded + page.head_dim, padded + elements, values[page.head_dim - 1]);
    const float levels = page.bits == 8 ? 255.0f : 15.0f;
    for (int group = 0; group < page.groups(); ++group) {
        const int first = group * size;
        const Pair pair = quantize_group(padded + first, size, levels, wide + first);
        pairs[(2 * group) * page.block_size] = pair.scale;
        pairs[(2 * group + 1) * page.block_size] = pair.minimum;
    }
    if (page.bits == 8) {
        std::memcpy(codes, wide, static_cast<std::size_t>(elements));
        return;
    }
    for (int run = 0; run < elements; run += kCodeRun)
        for (int i = 0; i < kCodeRun / 2; ++i)
            codes[run / 2 + i] =
                static_cast<std::uint8_t>(wide[run + i] | wide[run + kCodeRun / 2 + i] << 4);
}

}  // namespace tandem

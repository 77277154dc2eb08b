// Products of many rows alone, without sums in which rounding errors hide: each as near as float32
// comes, whatever the instruction set multiplies by. And numbers that are not finite, which stay in
// their rows.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "convert.hpp"
#include "linear.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;

constexpr int kRows = 40, kOutputs = 37, kGroup = 32;
constexpr WeightType kTypes[] = {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16,
                                 WeightType::kInt8, WeightType::kInt4};

// [kOutputs, kGroup], and what it means.
struct Weight {
    std::vector<std::uint32_t> words = std::vector<std::uint32_t>(kOutputs * kGroup);
    std::vector<std::uint16_t> scales = std::vector<std::uint16_t>(kOutputs);
    std::vector<std::uint8_t> zeros = std::vector<std::uint8_t>(kOutputs);
    std::vector<double> values = std::vector<double>(kOutputs * kGroup);
    LinearWeight view{};

    Weight(WeightType type, std::mt19937& random) {
        std::normal_distribution<float> normal;
        auto* bytes = reinterpret_cast<unsigned char*>(words.data());
        for (int row = 0; row < kOutputs; ++row) {
            scales[row] = to_half(0.01f + std::abs(normal(random)));
            zeros[row] =
                static_cast<std::uint8_t>(random() % (type == WeightType::kInt4 ? 16 : 256));
        }
        for (int i = 0; i < kOutputs * kGroup; ++i) {
            const float drawn = normal(random);
            const int row = i / kGroup, code = static_cast<int>(random() % 256);
            const double scale = from_half(scales[row]);
            if (type == WeightType::kFloat32) {
                words[i] = std::bit_cast<std::uint32_t>(drawn);
                values[i] = drawn;
            } else if (is_quantized(type)) {
                const bool narrow = type == WeightType::kInt4;
                const int q = narrow ? code % 16 : code;
                if (narrow)
                    bytes[i / 32 * 16 + i % 16] |=
                        static_cast<unsigned char>(q << (i % 32 / 16 * 4));
                else
                    bytes[i] = static_cast<unsigned char>(q);
                values[i] = (q - int{zeros[row]}) * scale;
            } else {
                const bool half = type == WeightType::kFloat16;
                const std::uint16_t bits = half ? to_half(drawn) : to_bfloat(drawn);
                std::memcpy(bytes + 2 * i, &bits, 2);
                values[i] = half ? from_half(bits) : from_bfloat(bits);
            }
        }
        view = {words.data(), type, scales.data(), zeros.data(), kGroup, nullptr, kOutputs, kGroup};
    }
};

std::vector<float> multiply(const Weight& weight, const std::vector<float>& x, Pool& pool,
                            Isa isa) {
    std::vector<float> y(kRows * kOutputs);
    LinearJob job(
        weight.view,
        {x.data(), kGroup, kRows, y.data(), kOutputs, LinearEnd::kStore, Activation::kNone}, isa, 2,
        pool.buffers());
    pool.run(job);
    return y;
}

// Every row of x is 0 but for one input, of any size.
void each_product_is_as_of_floats(Pool& pool, Isa isa, WeightType type) {
    std::mt19937 random(3);
    const Weight weight(type, random);
    std::uniform_real_distribution<float> power(-80, 80);
    std::vector<float> x(kRows * kGroup);
    for (int row = 0; row < kRows; ++row)
        x[row * kGroup + row % kGroup] = (random() % 2 ? 1.0f : -1.0f) * std::exp2(power(random));
    const std::vector<float> y = multiply(weight, x, pool, isa);
    for (int row = 0; row < kRows; ++row)
        for (int i = 0; i < kOutputs; ++i) {
            const int input = row % kGroup;
            const double exact = x[row * kGroup + input] * weight.values[i * kGroup + input];
            CHECK(std::abs(y[row * kOutputs + i] - exact) <= 0x1.2p-23 * std::abs(exact));
        }
}

void what_is_not_finite_stays_in_its_row(Pool& pool, Isa isa, WeightType type) {
    const float bad[] = {std::numeric_limits<float>::infinity(), std::nanf(""),
                         std::bit_cast<float>(0xffffffffu), std::bit_cast<float>(0x7f800001u)};
    std::mt19937 random(5);
    const Weight weight(type, random);
    std::vector<float> x(kRows * kGroup, 1.0f);
    for (int i = 0; i < 4; ++i) x[8 * i * kGroup + i] = bad[i];
    const std::vector<float> y = multiply(weight, x, pool, isa);
    for (int row = 0; row < kRows; ++row)
        for (int i = 0; i < kOutputs; ++i) {
            const bool spoilt = row % 8 == 0 && row < 32;
            // Infinity times a weight of 0, which some sets multiply by, is NaN as well.
            CHECK(std::isfinite(y[row * kOutputs + i]) != spoilt);
        }
}

}  // namespace

int main() {
    Pool pool({2, false, std::chrono::microseconds(10)});
    for (const Isa isa : supported_isas()) {
        for (const WeightType type : kTypes) {
            each_product_is_as_of_floats(pool, isa, type);
            what_is_not_finite_stays_in_its_row(pool, isa, type);
        }
        std::printf("%s ok\n", isa_name(isa));
    }
}

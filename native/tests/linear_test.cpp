// Random maps on memory of exactly the size that they may touch, against a plain computation in
// double; built with sanitizers, so that a read or write outside is found.
#include "linear.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "convert.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;

constexpr auto kForever = std::chrono::steady_clock::time_point::max();
using Random = std::mt19937;

int draw(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

// A weight in memory of its exact size, and what it means.
struct Weight {
    LinearWeight view{};
    std::unique_ptr<char[]> data;
    std::vector<std::uint16_t> scales;
    std::vector<std::uint8_t> zeros;
    std::vector<float> bias;
    std::vector<double> values;  // [outputs, inputs]

    void store(std::int64_t index, float value) {
        if (view.type == WeightType::kFloat32) {
            std::memcpy(data.get() + index * 4, &value, 4);
            values[index] = value;
            return;
        }
        const bool half = view.type == WeightType::kFloat16;
        const std::uint16_t bits = half ? to_half(value) : to_bfloat(value);
        std::memcpy(data.get() + index * 2, &bits, 2);
        values[index] = half ? from_half(bits) : from_bfloat(bits);
    }

    void store_quantized(Random& random, std::int64_t index) {
        const bool narrow = view.type == WeightType::kInt4;
        const int q = draw(random, 0, narrow ? 15 : 255);
        if (narrow) {
            const std::int64_t byte = index / 32 * 16 + index % 16;
            data[byte] = static_cast<char>(data[byte] | q << (index % 32 < 16 ? 0 : 4));
        } else {
            data[index] = static_cast<char>(q);
        }
        const std::int64_t group = index / view.group;
        values[index] = (q - int{zeros[group]}) * double{from_half(scales[group])};
    }
};

// Few rows of x are multiplied by so many inputs in several blocks.
constexpr int kWideInputs = 22 << 10;

Weight make_weight(Random& random, bool even_outputs, bool wide) {
    Weight w;
    w.view.type = static_cast<WeightType>(draw(random, 0, 4));
    w.view.outputs = draw(random, 1, wide ? 7 : 70) * (even_outputs ? 2 : 1);
    const bool quantized = w.view.type >= WeightType::kInt8;
    w.view.group = quantized ? 32 << draw(random, 0, 2) : 0;
    w.view.inputs = quantized ? w.view.group * draw(random, 1, 9) : draw(random, 1, 700);
    if (wide) w.view.inputs += kWideInputs;
    const std::int64_t count = std::int64_t{w.view.outputs} * w.view.inputs;
    const int bits[] = {32, 16, 16, 8, 4};
    w.data.reset(new char[count * bits[int(w.view.type)] / 8]());
    w.values.resize(count);
    std::normal_distribution<float> normal;
    if (quantized) {
        for (std::int64_t g = 0; g < count / w.view.group; ++g) {
            w.scales.push_back(to_half(0.02f * std::abs(normal(random)) + 0.001f));
            w.zeros.push_back(static_cast<std::uint8_t>(
                draw(random, 0, w.view.type == WeightType::kInt4 ? 15 : 255)));
        }
        for (std::int64_t i = 0; i < count; ++i) w.store_quantized(random, i);
    } else {
        for (std::int64_t i = 0; i < count; ++i) w.store(i, normal(random));
    }
    if (draw(random, 0, 1))
        for (int i = 0; i < w.view.outputs; ++i) w.bias.push_back(normal(random));
    w.view.data = w.data.get();
    w.view.scales = w.scales.data();
    w.view.zeros = w.zeros.data();
    w.view.bias = w.bias.empty() ? nullptr : w.bias.data();
    return w;
}

double activate(double x, Activation activation) {
    switch (activation) {
        case Activation::kNone:
            break;
        case Activation::kSilu:
            return x / (1 + std::exp(-x));
        case Activation::kGelu:
            return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
        case Activation::kGeluTanh:
            return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        case Activation::kRelu:
            return std::max(x, 0.0);
    }
    return x;
}

// The sum, and what its rounding is relative to.
struct Dot {
    double sum;
    double size;
};

constexpr double kRounding = 2e-6;

// What rounding x to 8 bits may move each element by.
double half_step(const Weight& w, const float* x, int input) {
    const float* group = x + input / w.view.group * w.view.group;
    double largest = 0;
    for (int i = 0; i < w.view.group; ++i) largest = std::max(largest, std::abs(double{group[i]}));
    return 1.0001 * largest / 254;
}

Dot dot(const Weight& w, const float* x, int output, bool rounds) {
    Dot result{w.bias.empty() ? 0.0 : w.bias[output], 1.0};
    for (int i = 0; i < w.view.inputs; ++i) {
        const double product = x[i] * w.values[std::int64_t{output} * w.view.inputs + i];
        result.sum += product;
        // Quantized products are formed with q and with z.
        result.size += std::abs(product);
        if (w.view.group) {
            const std::int64_t g = (std::int64_t{output} * w.view.inputs + i) / w.view.group;
            result.size += std::abs(x[i] * double{from_half(w.scales[g])}) * w.zeros[g];
        }
        if (rounds)
            result.size += half_step(w, x, i) / kRounding *
                           std::abs(w.values[std::int64_t{output} * w.view.inputs + i]);
    }
    return result;
}

void run_case(Random& random, Pool& pool, Isa isa, bool wide) {
    const auto end = static_cast<LinearEnd>(draw(random, 0, 3));
    const bool gated = end == LinearEnd::kGated;
    const Weight w = make_weight(random, gated, wide);
    const bool activates = gated || end == LinearEnd::kActivate;
    const auto activation = static_cast<Activation>(activates ? draw(random, 0, 4) : 0);
    const int rows = draw(random, 1, wide ? 14 : draw(random, 0, 1) ? 5 : 70);
    const int columns = w.view.outputs / (gated ? 2 : 1);
    const int x_gap = draw(random, 0, 3), y_gap = draw(random, 0, 3);
    const int x_stride = w.view.inputs + x_gap, y_stride = columns + y_gap;
    std::normal_distribution<float> normal;
    std::vector<float> x(std::size_t(rows) * x_stride - x_gap, std::nanf(""));
    for (int row = 0; row < rows; ++row)
        for (int i = 0; i < w.view.inputs; ++i) x[std::size_t(row) * x_stride + i] = normal(random);
    std::vector<float> y(std::size_t(rows) * y_stride - y_gap);
    for (float& value : y) value = normal(random);
    const std::vector<float> before = y;
    const bool rounds = w.view.type == WeightType::kInt8 && draw(random, 0, 1);
    LinearJob job(w.view, {x.data(), x_stride, rows, y.data(), y_stride, end, activation, rounds},
                  isa, draw(random, 1, 5), pool.buffers());
    pool.run(job);
    for (int row = 0; row < rows; ++row) {
        const float* inputs = x.data() + std::size_t(row) * x_stride;
        for (int i = 0; i < y_stride && std::size_t(row) * y_stride + i < y.size(); ++i) {
            const std::size_t at = std::size_t(row) * y_stride + i;
            if (i >= columns) {
                CHECK(y[at] == before[at]);
                continue;
            }
            const Dot first = dot(w, inputs, i, rounds);
            double expected = activate(first.sum, activation), size = first.size;
            if (gated) {
                const Dot up = dot(w, inputs, columns + i, rounds);
                size = (size * (std::abs(up.sum) + 1) + std::abs(expected) * up.size);
                expected *= up.sum;
            }
            if (end == LinearEnd::kAdd) expected += before[at];
            CHECK(std::abs(y[at] - expected) < kRounding * size);
        }
    }
}

template <class Change>
bool refuses(Pool& pool, const Change& change) {
    const float data[64] = {};
    float y[64];
    LinearWeight weight{data, WeightType::kFloat32, nullptr, nullptr, 0, nullptr, 2, 4};
    LinearCall call{data, 4, 2, y, 2, LinearEnd::kStore, Activation::kNone};
    change(weight, call);
    try {
        LinearJob job(weight, call, Isa::kPortable, 1, pool.buffers());
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

void nonsense_is_refused(Pool& pool) {
    using W = LinearWeight;
    using C = LinearCall;
    CHECK(!refuses(pool, [](W&, C&) {}));
    CHECK(refuses(pool, [](W& w, C&) { w.outputs = 0; }));
    CHECK(refuses(pool, [](W& w, C&) { w.inputs = -1; }));
    CHECK(refuses(pool, [](W& w, C&) { w.data = nullptr; }));
    CHECK(refuses(pool, [](W& w, C&) { w.type = WeightType::kInt8; }));
    CHECK(refuses(pool, [](W&, C& c) { c.rows = 0; }));
    CHECK(refuses(pool, [](W&, C& c) { c.rounds_x = true; }));
    CHECK(refuses(pool, [](W&, C& c) { c.x_stride = 3; }));
    CHECK(refuses(pool, [](W&, C& c) { c.y_stride = 1; }));
    CHECK(refuses(pool, [](W&, C& c) { c.activation = Activation::kRelu; }));
    CHECK(refuses(pool, [](W& w, C& c) { w.outputs = 1, c.end = LinearEnd::kGated; }));
}

// The smooth activations alone: a map of one input with weight 1.
void activations_are_accurate(Pool& pool, Isa isa) {
    std::vector<float> x, y;
    for (float value = -14; value < 14; value += 0.00123f) x.push_back(value);
    y.resize(x.size());
    const float one = 1;
    const LinearWeight weight{&one, WeightType::kFloat32, nullptr, nullptr, 0, nullptr, 1, 1};
    for (const Activation activation :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
        LinearJob job(weight,
                      {x.data(), 1, static_cast<int>(x.size()), y.data(), 1, LinearEnd::kActivate,
                       activation},
                      isa, 1, pool.buffers());
        pool.run(job);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double expected = activate(x[i], activation);
            if (std::abs(expected) < 2e-37) continue;  // e^-|x| is no normal number
            double allowed = 1e-6;
            // The rounding of the cubic is an exponent's, up to 200.
            if (activation == Activation::kGeluTanh)
                allowed += 2e-7 * std::abs(std::pow(x[i], 3) / 14);
            CHECK(std::abs(y[i] - expected) <= allowed * std::abs(expected));
        }
    }
}

}  // namespace

int main() {
    for (const Isa isa : supported_isas()) {
        Random random(7);
        Pool pool({3, false, std::chrono::microseconds(10)});
        nonsense_is_refused(pool);
        activations_are_accurate(pool, isa);
        for (int i = 0; i < 300; ++i) run_case(random, pool, isa, i % 25 == 24);
        std::printf("%s ok\n", isa_name(isa));
    }
}

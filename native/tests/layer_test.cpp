// Random layers against a plain computation in double, on memory of exactly the size that they may
// touch; built with sanitizers.
#include "layer.hpp"

#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "check.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;

using Random = std::mt19937;
using Vector = std::vector<double>;

int draw(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

// Floats in memory of their own, and the same in double.
struct Array {
    std::unique_ptr<float[]> data;
    Vector wide;

    Array(Random& random, std::size_t count, double scale = 1.0, double shift = 0.0)
        : data(new float[count]), wide(count) {
        std::normal_distribution<double> normal(shift, scale);
        for (std::size_t i = 0; i < count; ++i) wide[i] = data[i] = float(normal(random));
    }
    float* get() const { return data.get(); }
};

struct Matrix {
    Array values;
    Array bias;
    bool has_bias;
    int outputs, inputs;

    Matrix(Random& random, int outputs_, int inputs_)
        : values(random, std::size_t(outputs_) * inputs_, 1.0 / std::sqrt(inputs_)),
          bias(random, std::size_t(outputs_)),
          has_bias(draw(random, 0, 1)),
          outputs(outputs_),
          inputs(inputs_) {}

    LinearWeight weight() const {
        LinearWeight w{};
        w.data = values.get();
        w.type = WeightType::kFloat32;
        w.bias = has_bias ? bias.get() : nullptr;
        w.outputs = outputs;
        w.inputs = inputs;
        return w;
    }
    Vector times(std::span<const double> x) const {
        Vector y(std::size_t(outputs), 0.0);
        for (int o = 0; o < outputs; ++o) {
            for (int i = 0; i < inputs; ++i)
                y[o] += values.wide[std::size_t(o) * inputs + i] * x[i];
            if (has_bias) y[o] += bias.wide[o];
        }
        return y;
    }
};

constexpr double kEpsilon = 1e-5;

Vector normalized(std::span<const double> x, const Array& weight, const Array* bias) {
    const auto size = static_cast<double>(x.size());
    double mean = 0, square = 0;
    if (bias)
        for (double value : x) mean += value / size;
    for (double value : x) square += (value - mean) * (value - mean) / size;
    Vector y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
        y[i] = (x[i] - mean) / std::sqrt(square + kEpsilon) * weight.wide[i] +
               (bias ? bias->wide[i] : 0.0);
    return y;
}

struct Case {
    Random& random;
    HeadShape heads{.heads = 0, .kv_heads = draw(random, 1, 2), .head_dim = 4 * draw(random, 1, 6)};
    int group = draw(random, 1, 3);
    int hidden = draw(random, 1, 40);
    int inner = draw(random, 1, 50);
    int tokens = draw(random, 1, 20);
    bool gated = draw(random, 0, 1) == 1;
    bool rotates = draw(random, 0, 1) == 1;
    bool head_norms = draw(random, 0, 1) == 1;
    bool layer_norm = draw(random, 0, 1) == 1;
    bool post_norms = draw(random, 0, 1) == 1;
};

// Weights of a case, and the layer over them.
struct Layer {
    const Case& c;
    HeadShape heads;
    Array norm, norm_bias, mlp_norm, mlp_norm_bias, query_norm, key_norm;
    Array post_attention_norm, post_mlp_norm;
    Matrix qkv, output, up, down;

    explicit Layer(const Case& c_)
        : c(c_),
          heads{c.heads.kv_heads * c.group, c.heads.kv_heads, c.heads.head_dim},
          norm(c.random, c.hidden, 0.1, 1.0),
          norm_bias(c.random, c.hidden),
          mlp_norm(c.random, c.hidden, 0.1, 1.0),
          mlp_norm_bias(c.random, c.hidden),
          query_norm(c.random, heads.head_dim, 0.1, 1.0),
          key_norm(c.random, heads.head_dim, 0.1, 1.0),
          post_attention_norm(c.random, c.hidden, 0.1, 1.0),
          post_mlp_norm(c.random, c.hidden, 0.1, 1.0),
          qkv(c.random, static_cast<int>(heads.token_elements()), c.hidden),
          output(c.random, c.hidden, heads.heads * heads.head_dim),
          up(c.random, c.gated ? 2 * c.inner : c.inner, c.hidden),
          down(c.random, c.hidden, c.inner) {}

    Norm norm_of(const Array& weight, const Array& bias) const {
        return {weight.get(), c.layer_norm ? bias.get() : nullptr, float(kEpsilon), c.hidden};
    }
    // Has the bias of the norm before the branch.
    Norm post_norm_of(const Array& weight, const Array& bias) const {
        return c.post_norms ? norm_of(weight, bias) : Norm{};
    }
    LayerWeights weights() const {
        return {.attention_norm = norm_of(norm, norm_bias),
                .qkv = qkv.weight(),
                .heads = heads,
                .query_norm = c.head_norms ? query_norm.get() : nullptr,
                .key_norm = c.head_norms ? key_norm.get() : nullptr,
                .output = output.weight(),
                .post_attention_norm = post_norm_of(post_attention_norm, norm_bias),
                .mlp_norm = norm_of(mlp_norm, mlp_norm_bias),
                .up = up.weight(),
                .down = down.weight(),
                .post_mlp_norm = post_norm_of(post_mlp_norm, mlp_norm_bias),
                .activation = Activation::kSilu,
                .gated = c.gated};
    }
};

void check_close(std::span<const float> found, std::span<const double> expected) {
    CHECK(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - expected[i]) <= 2e-4 * (1 + std::abs(expected[i])));
}

Vector expected_heads(const Layer& layer, std::span<const double> residual, const Array& cos,
                      const Array& sin, int token) {
    const int dim = layer.heads.head_dim, half = dim / 2;
    Vector all = layer.qkv.times(
        normalized(residual, layer.norm, layer.c.layer_norm ? &layer.norm_bias : nullptr));
    for (int head = 0; head < layer.heads.heads + layer.heads.kv_heads; ++head) {
        const std::span<double> x(all.data() + std::size_t(head) * dim, std::size_t(dim));
        const Array& weight = head < layer.heads.heads ? layer.query_norm : layer.key_norm;
        Vector y(x.begin(), x.end());
        if (layer.c.head_norms) y = normalized(x, weight, nullptr);
        for (int i = 0; i < dim; ++i) {
            const std::size_t at = std::size_t(token) * dim + i;
            x[i] =
                layer.c.rotates ? y[i] * cos.wide[at] + y[(i + half) % dim] * sin.wide[at] : y[i];
        }
    }
    return all;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

Vector expected_output(const Layer& layer, std::span<const double> residual,
                       std::span<const double> attention) {
    Vector x(residual.begin(), residual.end());
    const auto add = [&](Vector added, const Array& weight, const Array& bias) {
        if (layer.c.post_norms)
            added = normalized(added, weight, layer.c.layer_norm ? &bias : nullptr);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += added[i];
    };
    add(layer.output.times(attention), layer.post_attention_norm, layer.norm_bias);
    const Vector both = layer.up.times(
        normalized(x, layer.mlp_norm, layer.c.layer_norm ? &layer.mlp_norm_bias : nullptr));
    Vector inner(std::size_t(layer.c.inner));
    for (std::size_t i = 0; i < inner.size(); ++i)
        inner[i] = silu(both[i]) * (layer.c.gated ? both[inner.size() + i] : 1.0);
    add(layer.down.times(inner), layer.post_mlp_norm, layer.mlp_norm_bias);
    return x;
}

void run_stages(Random& random, Pool& pool, Isa isa) {
    const Case c{.random = random};
    const Layer layer(c);
    const Array residual(random, std::size_t(c.tokens) * c.hidden);
    const std::size_t angles = std::size_t(c.tokens) * layer.heads.head_dim;
    const Array cos(random, angles), sin(random, angles);
    const std::size_t width = std::size_t(layer.heads.token_elements());
    const std::unique_ptr<float[]> qkv(new float[c.tokens * width]);
    const Workers workers{pool, isa};
    const Rotation rotation = c.rotates ? Rotation{cos.get(), sin.get()} : Rotation{};
    run_pre(workers, layer.weights(), rotation, c.tokens, residual.get(), qkv.get());
    const std::size_t attended = std::size_t(layer.heads.heads) * layer.heads.head_dim;
    const Array attention(random, c.tokens * attended);
    run_post(workers, layer.weights(), c.tokens, attention.get(), residual.get());
    for (std::size_t token = 0; token < std::size_t(c.tokens); ++token) {
        const std::span<const double> before(residual.wide.data() + token * c.hidden,
                                             std::size_t(c.hidden));
        check_close({qkv.get() + token * width, width},
                    expected_heads(layer, before, cos, sin, static_cast<int>(token)));
        check_close(
            {residual.get() + token * c.hidden, std::size_t(c.hidden)},
            expected_output(layer, before, {attention.wide.data() + token * attended, attended}));
    }
}

// One sequence of several tokens from nothing: the whole layer is its stages and their attention.
void run_whole(Random& random, Pool& pool, Isa isa) {
    Case c{.random = random};
    c.tokens = draw(random, 1, 8);
    const Layer layer(c);
    const LayerWeights weights = layer.weights();
    const Array residual(random, std::size_t(c.tokens) * c.hidden);
    std::vector<float> expected(residual.get(), residual.get() + c.tokens * c.hidden);
    const std::size_t angles = std::size_t(c.tokens) * layer.heads.head_dim;
    const Array cos(random, angles), sin(random, angles);
    const Rotation rotation = c.rotates ? Rotation{cos.get(), sin.get()} : Rotation{};
    const Workers workers{pool, isa};
    const HeadShape& heads = layer.heads;
    const AttentionShape shape{heads.heads, heads.kv_heads, 16, heads.head_dim};
    const std::vector<std::int32_t> start{0, c.tokens}, table{0};
    std::vector<std::int32_t> positions;
    std::vector<std::int64_t> slots;
    for (int i = 0; i < c.tokens; ++i) positions.push_back(i), slots.push_back(i);
    const AttentionArrays arrays{start, positions, table, {}, {}, false, 0};
    const auto plan = std::make_shared<AttentionPlan>(shape, arrays, pool.num_threads());
    const std::unique_ptr<float[]> pages(new float[shape.page_elements()]());
    const LayerAttention attention{.plan = plan,
                                   .slots = slots,
                                   .pages = pages.get(),
                                   .page_type = DType::kFloat32,
                                   .num_blocks = 1,
                                   .scale = 0.5f,
                                   .soft_cap = 0.0f};
    run_layer(workers, weights, rotation, attention, c.tokens, residual.get());

    const std::size_t width = std::size_t(heads.token_elements()), dim = heads.head_dim;
    std::vector<float> qkv(c.tokens * width), out(std::size_t(c.tokens) * heads.heads * dim);
    run_pre(workers, weights, rotation, c.tokens, expected.data(), qkv.data());
    for (int token = 0; token < c.tokens; ++token)
        for (int head = 0; head < heads.heads; ++head) {
            const float* query = qkv.data() + token * width + head * dim;
            const std::size_t key = (heads.heads + head / c.group) * dim;
            const std::size_t value = key + heads.kv_heads * dim;
            double total = 0;
            Vector sum(dim, 0.0);
            for (int other = 0; other <= token; ++other) {
                const float* row = qkv.data() + other * width;
                double score = 0;
                for (std::size_t i = 0; i < dim; ++i) score += 0.5 * query[i] * row[key + i];
                total += std::exp(score);
                for (std::size_t i = 0; i < dim; ++i) sum[i] += std::exp(score) * row[value + i];
            }
            for (std::size_t i = 0; i < dim; ++i)
                out[(std::size_t(token) * heads.heads + head) * dim + i] = float(sum[i] / total);
        }
    run_post(workers, weights, c.tokens, out.data(), expected.data());
    check_close({residual.get(), expected.size()}, Vector(expected.begin(), expected.end()));
}

}  // namespace

int main() {
    Pool pool({.num_threads = 2});
    for (Isa isa : supported_isas()) {
        Random random(5);
        for (int i = 0; i < 40; ++i) {
            run_stages(random, pool, isa);
            run_whole(random, pool, isa);
        }
    }
    return 0;
}

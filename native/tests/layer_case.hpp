// Random layers with their weights in double beside, on memory of exactly the size that may be
// touched.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "check.hpp"
#include "layer.hpp"

namespace tandem::test {

using Random = std::mt19937;
using Vector = std::vector<double>;

inline int draw(Random& random, int low, int high) {
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

inline Vector normalized(std::span<const double> x, const Array& weight, const Array* bias) {
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
    int experts = 0;  // if not 0: gated, without norms after
    int per_token = 0;
    bool renormalized = false;

    // The same with a mixture of experts in place of the MLP.
    void use_experts() {
        experts = draw(random, 1, 9);
        per_token = draw(random, 1, experts);
        renormalized = draw(random, 0, 1) == 1;
        gated = true;
        post_norms = false;
    }
};

// Weights of a case, and the layer over them.
struct Layer {
    const Case& c;
    HeadShape heads;
    Array norm, norm_bias, mlp_norm, mlp_norm_bias, query_norm, key_norm;
    Array post_attention_norm, post_mlp_norm;
    Matrix qkv, output, up, down;
    Matrix router;
    std::vector<std::unique_ptr<Matrix>> ups, downs;  // of experts
    std::vector<ExpertWeights> expert_weights;
    Experts experts{};

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
          down(c.random, c.hidden, c.inner),
          router(c.random, c.experts, c.hidden) {
        for (int i = 0; i < c.experts; ++i) {
            ups.push_back(std::make_unique<Matrix>(c.random, 2 * c.inner, c.hidden));
            downs.push_back(std::make_unique<Matrix>(c.random, c.hidden, c.inner));
            expert_weights.push_back({ups.back()->weight(), downs.back()->weight()});
        }
        experts = {router.weight(), expert_weights, c.hidden, c.inner, c.per_token, c.renormalized};
    }
    Layer(const Layer&) = delete;  // its experts point into it
    Layer& operator=(const Layer&) = delete;

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
                .up = c.experts ? LinearWeight{} : up.weight(),
                .down = c.experts ? LinearWeight{} : down.weight(),
                .experts = c.experts ? &experts : nullptr,
                .post_mlp_norm = post_norm_of(post_mlp_norm, mlp_norm_bias),
                .activation = Activation::kSilu,
                .gated = c.gated};
    }
};

inline void check_close(std::span<const float> found, std::span<const double> expected) {
    CHECK(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - expected[i]) <= 2e-4 * (1 + std::abs(expected[i])));
}

}  // namespace tandem::test

// Random layers against a plain computation in double; built with sanitizers.
#include <cmath>
#include <memory>
#include <span>

#include "layer_case.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;
using namespace tandem::test;

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

}  // namespace

int main() {
    Pool pool({.num_threads = 2});
    for (Isa isa : supported_isas()) {
        Random random(5);
        for (int i = 0; i < 40; ++i) run_stages(random, pool, isa);
    }
    return 0;
}

// Random layers against a plain computation in double; built with sanitizers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

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

Vector mlp(const Case& c, const Matrix& up, const Matrix& down, const Vector& x) {
    const Vector both = up.times(x);
    Vector inner(std::size_t(c.inner));
    for (std::size_t i = 0; i < inner.size(); ++i)
        inner[i] = silu(both[i]) * (c.gated ? both[inner.size() + i] : 1.0);
    return down.times(inner);
}

Vector mixture(const Layer& layer, const Vector& x) {
    Vector scores = layer.router.times(x), y(x.size(), 0.0);
    std::vector<int> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int a, int b) { return scores[a] > scores[b]; });
    double total = 0;
    const std::size_t summed =
        layer.c.renormalized ? std::size_t(layer.c.per_token) : scores.size();
    for (std::size_t i = 0; i < summed; ++i) total += std::exp(scores[order[i]]);
    for (int i = 0; i < layer.c.per_token; ++i) {
        const int expert = order[i];
        const Vector own = mlp(layer.c, *layer.ups[expert], *layer.downs[expert], x);
        for (std::size_t j = 0; j < y.size(); ++j)
            y[j] += std::exp(scores[expert]) / total * own[j];
    }
    return y;
}

Vector expected_output(const Layer& layer, std::span<const double> residual,
                       std::span<const double> attention) {
    Vector x(residual.begin(), residual.end());
    const auto add = [&](Vector added, const Array& weight, const Array& bias) {
        if (layer.c.post_norms)
            added = normalized(added, weight, layer.c.layer_norm ? &bias : nullptr);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += added[i];
    };
    add(layer.output.times(attention), layer.post_attention_norm, layer.norm_bias);
    const Vector normed =
        normalized(x, layer.mlp_norm, layer.c.layer_norm ? &layer.mlp_norm_bias : nullptr);
    const Vector added =
        layer.c.experts ? mixture(layer, normed) : mlp(layer.c, layer.up, layer.down, normed);
    add(added, layer.post_mlp_norm, layer.mlp_norm_bias);
    return x;
}

void run_stages(Random& random, Pool& pool, Isa isa, bool routed) {
    Case c{.random = random};
    if (routed) {
        c.use_experts();
        c.tokens = draw(random, 1, 90);  // also more than are worked on at a time
    }
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

// Tokens go where they are told, and experts that are elsewhere are left out.
void run_share(Random& random, Pool& pool, Isa isa) {
    Case c{.random = random};
    c.use_experts();
    c.tokens = draw(random, 1, 90);
    Layer layer(c);
    const std::size_t pairs = std::size_t(c.tokens) * c.per_token;
    std::vector<std::int64_t> chosen(pairs);
    for (std::int64_t& expert : chosen) expert = draw(random, 0, c.experts - 1);
    const Array shares(random, pairs), residual(random, std::size_t(c.tokens) * c.hidden);
    for (ExpertWeights& expert : layer.expert_weights)
        if (draw(random, 0, 1) == 1) expert = {};
    layer.experts.router = {};
    run_mlp({pool, isa}, layer.weights().mlp(), c.tokens, residual.get(),
            {chosen.data(), shares.get()});
    for (std::size_t token = 0; token < std::size_t(c.tokens); ++token) {
        Vector x(residual.wide.begin() + token * c.hidden,
                 residual.wide.begin() + (token + 1) * c.hidden);
        const Vector normed =
            normalized(x, layer.mlp_norm, c.layer_norm ? &layer.mlp_norm_bias : nullptr);
        for (std::size_t i = token * c.per_token; i < (token + 1) * c.per_token; ++i) {
            const std::int64_t expert = chosen[i];
            if (!layer.expert_weights[expert].here()) continue;
            const Vector own = mlp(c, *layer.ups[expert], *layer.downs[expert], normed);
            for (std::size_t j = 0; j < x.size(); ++j) x[j] += shares.wide[i] * own[j];
        }
        check_close({residual.get() + token * c.hidden, std::size_t(c.hidden)}, x);
    }
}

// Several threads may use one layer: what is counted adds up.
void two_threads_share_a_layer(Random& random, Pool& pool, Isa isa) {
    constexpr int kRounds = 30;
    Case c{.random = random};
    c.use_experts();
    Layer layer(c);
    std::vector<std::int64_t> hits(std::size_t(c.experts), 0);
    layer.experts.hits = hits.data();
    const auto run = [&](float* residual) {
        for (int i = 0; i < kRounds; ++i)
            run_mlp({pool, isa}, layer.weights().mlp(), c.tokens, residual);
    };
    const Array one(random, std::size_t(c.tokens) * c.hidden);
    const Array other(random, std::size_t(c.tokens) * c.hidden);
    std::thread thread([&] { run(one.get()); });
    run(other.get());
    thread.join();
    CHECK(std::accumulate(hits.begin(), hits.end(), std::int64_t{0}) ==
          std::int64_t{2} * kRounds * c.tokens * c.per_token);
}

void experts_that_do_not_exist_are_refused(Random& random, Pool& pool, Isa isa) {
    Case c{.random = random};
    c.use_experts();
    c.tokens = 1;
    const Layer layer(c);
    const Array residual(random, std::size_t(c.hidden)), shares(random, std::size_t(c.per_token));
    for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{c.experts}}) {
        const std::vector<std::int64_t> chosen(std::size_t(c.per_token), id);
        bool refused = false;
        try {
            run_mlp({pool, isa}, layer.weights().mlp(), 1, residual.get(),
                    {chosen.data(), shares.get()});
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        CHECK(refused);
    }
}

}  // namespace

int main() {
    Pool pool({.num_threads = 2});
    for (Isa isa : supported_isas()) {
        Random random(5);
        for (int i = 0; i < 40; ++i) run_stages(random, pool, isa, false);
        for (int i = 0; i < 40; ++i) run_stages(random, pool, isa, true);
        for (int i = 0; i < 40; ++i) run_share(random, pool, isa);
        two_threads_share_a_layer(random, pool, isa);
        experts_that_do_not_exist_are_refused(random, pool, isa);
    }
    return 0;
}

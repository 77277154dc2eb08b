#include "layer.hpp"

#include "scratch.hpp"

namespace tandem {
namespace {

struct Product {
    const LinearWeight& weight;
    const float* x;
    float* y;
    bool rounds_x;
    LinearEnd end = LinearEnd::kStore;
    Activation activation = Activation::kNone;
};

void multiply(const Workers& workers, std::int64_t tokens, const Product& product) {
    const LinearWeight& weight = product.weight;
    const int columns = product.end == LinearEnd::kGated ? weight.outputs / 2 : weight.outputs;
    const LinearCall call{.x = product.x,
                          .x_stride = weight.inputs,
                          .rows = static_cast<int>(tokens),
                          .y = product.y,
                          .y_stride = columns,
                          .end = product.end,
                          .activation = product.activation,
                          .rounds_x = product.rounds_x};
    LinearJob job(weight, call, workers.isa, workers.pool.num_threads(), workers.pool.buffers());
    workers.pool.run(job);
}

void normalize_rows(const Workers& workers, const Norm& norm, std::int64_t tokens, const float* x,
                    float* y, NormEnd end = NormEnd::kStore) {
    NormJob job(norm, x, y, tokens, workers.pool.num_threads(), end);
    workers.pool.run(job);
}

// Adds x W^T, normed if there is a norm, to the residual.
void add_branch(const Workers& workers, const LinearWeight& weight, const Norm& norm, bool rounds_x,
                std::int64_t tokens, const float* x, float* residual) {
    if (!norm.weight)
        return multiply(workers, tokens, {weight, x, residual, rounds_x, LinearEnd::kAdd});
    const Scratch product(workers.pool.buffers(), tokens, weight.outputs);
    multiply(workers, tokens, {weight, x, product.data(), rounds_x});
    normalize_rows(workers, norm, tokens, product.data(), residual, NormEnd::kAdd);
}

}  // namespace

void run_pre(const Workers& workers, const LayerWeights& layer, const Rotation& rotation,
             std::int64_t tokens, const float* residual, float* qkv) {
    const Scratch normed(workers.pool.buffers(), tokens, layer.hidden());
    normalize_rows(workers, layer.attention_norm, tokens, residual, normed.data());
    multiply(workers, tokens, {layer.qkv, normed.data(), qkv, layer.rounds_x});
    const HeadTransform transform{.query_norm = layer.query_norm,
                                  .key_norm = layer.key_norm,
                                  .epsilon = layer.attention_norm.epsilon,
                                  .cos = rotation.cos,
                                  .sin = rotation.sin};
    if (transform.is_identity()) return;
    HeadsJob job(layer.heads, transform, qkv, tokens, workers.pool.num_threads());
    workers.pool.run(job);
}

void run_post(const Workers& workers, const LayerWeights& layer, std::int64_t tokens,
              const float* attention, float* residual) {
    add_branch(workers, layer.output, layer.post_attention_norm, layer.rounds_x, tokens, attention,
               residual);
    run_mlp(workers, layer.mlp(), tokens, residual);
}

void run_mlp(const Workers& workers, const MlpWeights& mlp, std::int64_t tokens, float* residual,
             const Choices& given) {
    const Scratch normed(workers.pool.buffers(), tokens, mlp.hidden());
    normalize_rows(workers, mlp.norm, tokens, residual, normed.data());
    if (mlp.experts)
        return run_experts(workers, *mlp.experts, mlp.activation, mlp.rounds_x, tokens,
                           normed.data(), residual, given);
    const Scratch inner(workers.pool.buffers(), tokens, mlp.intermediate());
    const LinearEnd end = mlp.gated ? LinearEnd::kGated : LinearEnd::kActivate;
    multiply(workers, tokens,
             {mlp.up, normed.data(), inner.data(), mlp.rounds_x, end, mlp.activation});
    add_branch(workers, mlp.down, mlp.post_norm, mlp.rounds_x, tokens, inner.data(), residual);
}

}  // namespace tandem

#include "layer.hpp"

#include <cstddef>
#include <utility>

#include "append.hpp"
#include "attention.hpp"

namespace tandem {
namespace {

// Memory between two operations of a stage, from the pool's store and back.
class Scratch {
  public:
    Scratch(Pool& pool, std::int64_t tokens, int width)
        : store_(pool.buffers()),
          buffer_(store_.take()),
          data_(buffer_.reserve(static_cast<std::size_t>(tokens) * width)) {}
    ~Scratch() { store_.give(std::move(buffer_)); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    float* data() const { return data_; }

  private:
    BufferStore& store_;
    FloatBuffer buffer_;
    float* data_;
};

struct Product {
    const LinearWeight& weight;
    const float* x;
    float* y;
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
                          .activation = product.activation};
    LinearJob job(weight, call, workers.isa, workers.pool.num_threads(), workers.pool.buffers());
    workers.pool.run(job);
}

void normalize_rows(const Workers& workers, const Norm& norm, std::int64_t tokens, const float* x,
                    float* y, NormEnd end = NormEnd::kStore) {
    NormJob job(norm, x, y, tokens, workers.pool.num_threads(), end);
    workers.pool.run(job);
}

// Adds x W^T, normed if there is a norm, to the residual.
void add_branch(const Workers& workers, const LinearWeight& weight, const Norm& norm,
                std::int64_t tokens, const float* x, float* residual) {
    if (!norm.weight) return multiply(workers, tokens, {weight, x, residual, LinearEnd::kAdd});
    const Scratch product(workers.pool, tokens, weight.outputs);
    multiply(workers, tokens, {weight, x, product.data()});
    normalize_rows(workers, norm, tokens, product.data(), residual, NormEnd::kAdd);
}

// Of keys and values as `run_pre` leaves them.
AppendMemory append_memory(const LayerWeights& layer, const LayerAttention& attention,
                           const float* qkv) {
    const HeadShape& shape = layer.heads;
    const float* keys = qkv + std::int64_t{shape.heads} * shape.head_dim;
    return {.keys = keys,
            .values = keys + std::int64_t{shape.kv_heads} * shape.head_dim,
            .key_stride = shape.token_elements(),
            .value_stride = shape.token_elements(),
            .source_type = DType::kFloat32,
            .slots = attention.slots,
            .pages = attention.pages,
            .page_type = attention.page_type,
            .num_blocks = attention.num_blocks,
            .kv_heads = shape.kv_heads,
            .block_size = attention.plan->shape.block_size,
            .head_dim = shape.head_dim};
}

void attend(const Workers& workers, const LayerWeights& layer, const LayerAttention& attention,
            const float* qkv, float* out, float* lse) {
    AttentionJob job(attention.plan,
                     {.queries = qkv,
                      .query_stride = layer.heads.token_elements(),
                      .query_type = DType::kFloat32,
                      .pages = attention.pages,
                      .page_type = attention.page_type,
                      .num_blocks = attention.num_blocks,
                      .out = out,
                      .lse = lse},
                     attention.scale, attention.soft_cap, workers.isa, workers.pool.buffers());
    workers.pool.run(job);
}

}  // namespace

void run_layer(const Workers& workers, const LayerWeights& layer, const Rotation& rotation,
               const LayerAttention& attention, std::int64_t tokens, float* residual) {
    const HeadShape& shape = layer.heads;
    const Scratch qkv(workers.pool, tokens, static_cast<int>(shape.token_elements()));
    const Scratch out(workers.pool, tokens, shape.heads * shape.head_dim);
    const Scratch lse(workers.pool, tokens, shape.heads);
    AppendJob append(append_memory(layer, attention, qkv.data()), workers.pool.num_threads());
    run_pre(workers, layer, rotation, tokens, residual, qkv.data());
    workers.pool.run(append);
    attend(workers, layer, attention, qkv.data(), out.data(), lse.data());
    run_post(workers, layer, tokens, out.data(), residual);
}

void run_pre(const Workers& workers, const LayerWeights& layer, const Rotation& rotation,
             std::int64_t tokens, const float* residual, float* qkv) {
    const Scratch normed(workers.pool, tokens, layer.hidden());
    normalize_rows(workers, layer.attention_norm, tokens, residual, normed.data());
    multiply(workers, tokens, {layer.qkv, normed.data(), qkv});
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
    add_branch(workers, layer.output, layer.post_attention_norm, tokens, attention, residual);
    const Scratch normed(workers.pool, tokens, layer.hidden());
    const Scratch inner(workers.pool, tokens, layer.intermediate());
    normalize_rows(workers, layer.mlp_norm, tokens, residual, normed.data());
    const LinearEnd end = layer.gated ? LinearEnd::kGated : LinearEnd::kActivate;
    multiply(workers, tokens, {layer.up, normed.data(), inner.data(), end, layer.activation});
    add_branch(workers, layer.down, layer.post_mlp_norm, tokens, inner.data(), residual);
}

}  // namespace tandem

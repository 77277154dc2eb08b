// A decoder layer's operations around attention, each stage as one call.
#pragma once

#include <cstdint>

#include "experts.hpp"
#include "heads.hpp"
#include "linear.hpp"
#include "norm.hpp"
#include "workers.hpp"

namespace tandem {

// Of a layer's end: a norm, and the MLP or the experts in its place.
struct MlpWeights {
    Norm norm;
    LinearWeight up{};  // gate and up stacked, if gated
    LinearWeight down{};
    const Experts* experts = nullptr;  // in place of up and down; gated, and added without a norm
    Norm post_norm{};                  // of what is added to the residual; without a weight: none
    Activation activation;
    bool gated;
    bool rounds_x = false;  // of every map but a router: see LinearCall

    int hidden() const { return norm.size; }
    int intermediate() const { return experts ? experts->intermediate : down.inputs; }
};

// Weights of one layer, in memory that outlives all calls.
struct LayerWeights {
    Norm attention_norm;
    LinearWeight qkv;  // queries, keys and values stacked
    HeadShape heads;
    const float* query_norm = nullptr;  // [head_dim]; null: none
    const float* key_norm = nullptr;
    LinearWeight output;
    Norm post_attention_norm{};  // of what is added to the residual; without a weight: none
    Norm mlp_norm;
    LinearWeight up{};  // from here on as in MlpWeights
    LinearWeight down{};
    const Experts* experts = nullptr;
    Norm post_mlp_norm{};
    Activation activation;
    bool gated;
    bool rounds_x = false;

    int hidden() const { return qkv.inputs; }
    int intermediate() const { return mlp().intermediate(); }
    MlpWeights mlp() const {
        return {.norm = mlp_norm,
                .up = up,
                .down = down,
                .experts = experts,
                .post_norm = post_mlp_norm,
                .activation = activation,
                .gated = gated,
                .rounds_x = rounds_x};
    }
};

// Cosines and signed sines of each token's position, [tokens, head_dim]; null: no rotation.
struct Rotation {
    const float* cos = nullptr;
    const float* sin = nullptr;
};

// Norm, projections, norms of heads, rotation.
//
// residual: [tokens, hidden]; qkv: [tokens, (heads + 2 * kv_heads) * head_dim], written.
void run_pre(const Workers& workers, const LayerWeights& layer, const Rotation& rotation,
             std::int64_t tokens, const float* residual, float* qkv);

// Output projection, norm and MLP, both added to the residual.
//
// attention: [tokens, heads * head_dim]; residual: [tokens, hidden], changed in place.
void run_post(const Workers& workers, const LayerWeights& layer, std::int64_t tokens,
              const float* attention, float* residual);

// The part of `run_post` after the output projection: norm and MLP, added to the residual.
//
// given: of a mixture of experts, see `run_experts`.
void run_mlp(const Workers& workers, const MlpWeights& mlp, std::int64_t tokens, float* residual,
             const Choices& given = {});

}  // namespace tandem

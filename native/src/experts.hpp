// A mixture of experts in place of a layer's MLP.
#pragma once

#include <cstdint>
#include <span>

#include "linear_kernel.hpp"
#include "linear_weight.hpp"
#include "routing.hpp"
#include "workers.hpp"

namespace tandem {

struct ExpertWeights {
    LinearWeight up{};  // gate and up stacked
    LinearWeight down{};

    bool here() const { return down.outputs > 0; }  // else another device computes it
};

// Where tokens go, if that has been decided already. Null: it has not.
struct Choices {
    const std::int64_t* experts = nullptr;  // [tokens, per_token], each one of the layer's
    const float* shares = nullptr;          // [tokens, per_token]
};

// In memory that outlives all calls.
struct Experts {
    LinearWeight router;                     // [experts, hidden]; empty if choices are given
    std::span<const ExpertWeights> weights;  // one each; some may be elsewhere
    int hidden, intermediate;
    int per_token;
    bool renormalized;
    std::int64_t* hits = nullptr;  // [experts]; of tokens that went to them, added to; null: none

    RoutingRule rule() const { return {static_cast<int>(weights.size()), per_token, renormalized}; }
};

// Every token's experts, their results weighted and added to the residual; those elsewhere are left
// out. Of the weights, those of experts that a token goes to are read, once each.
//
// x, residual: [tokens, hidden]; the residual is changed in place.
// given: by these tokens go to experts, and are not counted; else by the router.
// rounds_x: of their maps, see LinearCall.
void run_experts(const Workers& workers, const Experts& experts, Activation activation,
                 bool rounds_x, std::int64_t tokens, const float* x, float* residual,
                 const Choices& given = {});

// What `run_experts` takes beside its arguments while it runs.
struct ExpertScratch {
    std::int64_t token_bytes;
    std::int64_t bytes;  // whatever the number of tokens
};
ExpertScratch expert_scratch(const Experts& experts);

}  // namespace tandem

// Which experts each token goes to, and in what order their rows lie.
#pragma once

#include <cstdint>
#include <span>

#include "scratch.hpp"
#include "workers.hpp"

namespace tandem {

// How tokens choose among experts.
struct RoutingRule {
    int experts;
    int per_token;
    bool renormalized;  // the shares of a token's experts sum to one; else those of all do
};

// A token's experts are ascending, so that its results are added up in the same order whatever
// tokens are beside it. The rows of an expert lie together, experts ascending.
struct Routing {
    Borrowed<int> experts;   // [tokens, per_token]
    Borrowed<float> shares;  // [tokens, per_token]; of the softmax over all experts
    Borrowed<int> rows;      // [tokens, per_token]; where the token's row lies; -1: it has none
    Borrowed<int> tokens;    // of each row; as many as `experts`
    Borrowed<int> first;     // [experts + 1]; each expert's first row
};

// scores: [tokens, experts]. Of equal scores the first ones win.
Routing route(const Workers& workers, const RoutingRule& rule, std::int64_t tokens,
              const float* scores);

// By choices that were made elsewhere, whose order stays.
//
// experts, shares: [tokens, per_token].
// here: [experts]; the others get no rows.
// Throws std::invalid_argument for an expert that does not exist.
Routing route_as_given(const Workers& workers, const RoutingRule& rule, std::int64_t tokens,
                       const std::int64_t* experts, const float* shares,
                       std::span<const bool> here);

}  // namespace tandem

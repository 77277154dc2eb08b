#include "routing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "rows_job.hpp"

namespace tandem {
namespace {

bool has(const int* chosen, int count, int expert) {
    return std::find(chosen, chosen + count, expert) != chosen + count;
}

// The best scores, `per_token` of them; any numbers will do, also those that are none.
void choose(const RoutingRule& rule, const float* scores, int* chosen) {
    for (int i = 0; i < rule.per_token; ++i) {
        int best = -1;
        for (int expert = 0; expert < rule.experts; ++expert)
            if ((best < 0 || scores[expert] > scores[best]) && !has(chosen, i, expert))
                best = expert;
        chosen[i] = best;
    }
    std::sort(chosen, chosen + rule.per_token);
}

void weigh(const RoutingRule& rule, const float* scores, const int* chosen, float* shares) {
    const float most = *std::max_element(scores, scores + rule.experts);
    float total = 0.0f;
    for (int i = 0; i < rule.per_token; ++i) {
        shares[i] = std::exp(scores[chosen[i]] - most);
        total += shares[i];
    }
    if (!rule.renormalized) {
        total = 0.0f;
        for (int expert = 0; expert < rule.experts; ++expert)
            total += std::exp(scores[expert] - most);
    }
    for (int i = 0; i < rule.per_token; ++i) shares[i] /= total;
}

// By counting: `first`, then every row's place.
void order_rows(const RoutingRule& rule, const std::vector<bool>& here, Routing& routing) {
    routing.first.assign(std::size_t(rule.experts) + 1, 0);
    for (int expert : routing.experts) routing.first[expert + 1] += here[expert];
    std::partial_sum(routing.first.begin(), routing.first.end(), routing.first.begin());
    std::vector<int> next(routing.first.begin(), routing.first.end() - 1);
    for (std::size_t i = 0; i < routing.experts.size(); ++i) {
        if (!here[routing.experts[i]]) continue;
        const int row = next[routing.experts[i]]++;
        routing.rows[i] = row;
        routing.tokens[row] = static_cast<int>(i / rule.per_token);
    }
}

Routing empty_routing(std::size_t pairs) {
    return {.experts = std::vector<int>(pairs),
            .shares = std::vector<float>(pairs),
            .rows = std::vector<int>(pairs, -1),
            .tokens = std::vector<int>(pairs),
            .first = {}};
}

}  // namespace

Routing route(const Workers& workers, const RoutingRule& rule, std::int64_t tokens,
              const float* scores) {
    Routing routing = empty_routing(std::size_t(tokens) * rule.per_token);
    const auto choose_of = [&](std::int64_t token) {
        const float* row = scores + token * rule.experts;
        int* chosen = routing.experts.data() + token * rule.per_token;
        choose(rule, row, chosen);
        weigh(rule, row, chosen, routing.shares.data() + token * rule.per_token);
    };
    RowsJob job(tokens, std::int64_t{rule.experts} * rule.per_token, workers.pool.num_threads(),
                choose_of);
    workers.pool.run(job);
    order_rows(rule, std::vector<bool>(rule.experts, true), routing);
    return routing;
}

Routing route_as_given(const RoutingRule& rule, std::int64_t tokens, const std::int64_t* experts,
                       const float* shares, const std::vector<bool>& here) {
    const std::size_t pairs = std::size_t(tokens) * rule.per_token;
    Routing routing = empty_routing(pairs);
    std::copy(experts, experts + pairs, routing.experts.begin());
    std::copy(shares, shares + pairs, routing.shares.begin());
    order_rows(rule, here, routing);
    return routing;
}

}  // namespace tandem

#include "routing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>

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

// By counting: `first`, then every row's place. `here(expert)`: whether it has rows.
template <class Here>
void order_rows(BufferStore& buffers, const RoutingRule& rule, const Here& here, Routing& routing) {
    const std::span<int> experts = routing.experts.all(), first = routing.first.all();
    std::ranges::fill(first, 0);
    for (int expert : experts) first[expert + 1] += here(expert);
    std::partial_sum(first.begin(), first.end(), first.begin());
    const Borrowed<int> next(buffers, static_cast<std::size_t>(rule.experts));
    std::copy(first.begin(), first.end() - 1, next.data());
    for (std::size_t i = 0; i < experts.size(); ++i) {
        routing.rows[i] = -1;
        if (!here(experts[i])) continue;
        const int row = next[experts[i]]++;
        routing.rows[i] = row;
        routing.tokens[row] = static_cast<int>(i / rule.per_token);
    }
}

Routing empty_routing(BufferStore& buffers, const RoutingRule& rule, std::int64_t tokens) {
    const std::size_t pairs = static_cast<std::size_t>(tokens) * rule.per_token;
    return {.experts = {buffers, pairs},
            .shares = {buffers, pairs},
            .rows = {buffers, pairs},
            .tokens = {buffers, pairs},
            .first = {buffers, static_cast<std::size_t>(rule.experts) + 1}};
}

}  // namespace

Routing route(const Workers& workers, const RoutingRule& rule, std::int64_t tokens,
              const float* scores) {
    BufferStore& buffers = workers.pool.buffers();
    Routing routing = empty_routing(buffers, rule, tokens);
    const auto choose_of = [&](std::int64_t token) {
        const float* row = scores + token * rule.experts;
        int* chosen = routing.experts.data() + token * rule.per_token;
        choose(rule, row, chosen);
        weigh(rule, row, chosen, routing.shares.data() + token * rule.per_token);
    };
    RowsJob job(tokens, std::int64_t{rule.experts} * rule.per_token, workers.pool.num_threads(),
                choose_of);
    workers.pool.run(job);
    order_rows(buffers, rule, [](int) { return true; }, routing);
    return routing;
}

Routing route_as_given(const Workers& workers, const RoutingRule& rule, std::int64_t tokens,
                       const std::int64_t* experts, const float* shares,
                       std::span<const bool> here) {
    BufferStore& buffers = workers.pool.buffers();
    Routing routing = empty_routing(buffers, rule, tokens);
    for (std::size_t i = 0; i < routing.experts.all().size(); ++i) {
        const std::int64_t expert = experts[i];
        if (expert < 0 || expert >= rule.experts)
            throw std::invalid_argument("expert " + std::to_string(expert) + " does not exist");
        routing.experts[i] = static_cast<int>(expert);
        routing.shares[i] = shares[i];
    }
    order_rows(buffers, rule, [&](int expert) { return here[expert]; }, routing);
    return routing;
}

}  // namespace tandem

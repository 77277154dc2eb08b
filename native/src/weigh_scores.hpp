// From scores to weights, with the maximum taken out as it grows.
#pragma once

#include "attention_kernel.hpp"
#include "vector_math.hpp"

namespace tandem {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

int bound(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

// Turns a query's scores into weights and notes by how much earlier sums shrink.
template <class Vec>
void weigh_tile(int query, int first_key, int count, const AttentionRun& run) {
    float* scores = run.scores + static_cast<long>(query) * kMaxTile;
    const int padded = (count + Vec::kWidth - 1) / Vec::kWidth * Vec::kWidth;
    if (run.soft_cap > 0)
        for (int i = 0; i < padded; i += Vec::kWidth)
            Vec::store(scores + i, cap_softly<Vec>(Vec::load(scores + i), run.soft_cap));
    const int unseen = bound(run.first_seen[query] - first_key, count);
    for (int i = 0; i < unseen; ++i) scores[i] = kMinusInfinity;
    for (int i = bound(run.visible[query] - first_key, count); i < padded; ++i)
        scores[i] = kMinusInfinity;
    auto highest = Vec::broadcast(run.max[query]);
    for (int i = 0; i < padded; i += Vec::kWidth)
        highest = Vec::max(highest, Vec::load(scores + i));
    const float max = Vec::max_of(highest);
    if (!(max > kMinusInfinity)) {  // no key seen yet, or none with a number for a score
        for (int i = 0; i < padded; ++i) {
            if (scores[i] != scores[i]) run.weight[query] = scores[i];
            scores[i] = 0.0f;
        }
        run.correction[query] = 1.0f;
        return;
    }
    const auto base = Vec::broadcast(max);
    auto sum = Vec::zero();
    for (int i = 0; i < padded; i += Vec::kWidth) {
        const auto weight = exp2<Vec>(Vec::sub(Vec::load(scores + i), base));
        Vec::store(scores + i, weight);
        sum = Vec::add(sum, weight);
    }
    float shrink[Vec::kWidth];
    Vec::store(shrink, exp2<Vec>(Vec::broadcast(run.max[query] - max)));
    run.correction[query] = shrink[0];
    run.weight[query] = run.weight[query] * shrink[0] + Vec::sum(sum);
    run.max[query] = max;
}

}  // namespace
}  // namespace tandem

// Products of four queries and three keys at a time.
//
// For instruction sets of 16 registers whose vectors sum two queries' keys at once: twelve sums
// keep both multipliers busy, where eight wait for each other as soon as one operand is late, and a
// key is widened once for four queries.
#pragma once

#include "attention_kernel.hpp"
#include "prefetcher.hpp"

namespace tandem {
namespace {

constexpr int kTriple = 3;
constexpr int kTripleQueries = 4;

// Scores of four queries with kKeys keys, stored as [query][key].
template <class Vec, class T, int kKeys>
inline __attribute__((always_inline)) void score_few_keys(const T* keys, const float* queries,
                                                          const AttentionRun& run, float* scores) {
    const int dim = run.head_dim;
    typename Vec::Reg sums[kKeys][kTripleQueries];
    for (auto& row : sums)
        for (auto& sum : row) sum = Vec::zero();
    const auto accumulate = [&](const auto& load, int column) __attribute__((always_inline)) {
        typename Vec::Reg values[kKeys];
        for (int key = 0; key < kKeys; ++key)
            values[key] = load(keys + static_cast<long>(key) * dim + column);
#pragma GCC unroll 4
        for (int i = 0; i < kTripleQueries; ++i) {
            const auto query = Vec::load(queries + static_cast<long>(i) * run.padded_dim + column);
            for (int key = 0; key < kKeys; ++key)
                sums[key][i] = Vec::fma(values[key], query, sums[key][i]);
        }
    };
    int column = 0;
    for (; column + Vec::kWidth <= dim; column += Vec::kWidth)
        accumulate([](const T* p) { return Vec::load(p); }, column);
    if (column < dim)
        accumulate([&](const T* p) { return Vec::load_part(p, dim - column); }, column);
    float totals[kKeys][kTripleQueries];
    for (int key = 0; key < kKeys; ++key) Vec::sum_four(sums[key], totals[key]);
    for (int i = 0; i < kTripleQueries; ++i)
        for (int key = 0; key < kKeys; ++key) scores[i * kMaxTile + key] = totals[key][i];
}

// Scores of four queries with a tile's keys.
template <class Vec, class T>
void score_triples(const T* keys, int count, int first_query, const AttentionRun& run,
                   Prefetcher& prefetcher) {
    const float* queries = run.queries + static_cast<long>(first_query) * run.padded_dim;
    float* scores = run.scores + static_cast<long>(first_query) * kMaxTile;
    const auto row = [&](int key) { return keys + static_cast<long>(key) * run.head_dim; };
    int key = 0;
    for (; key + kTriple <= count; key += kTriple) {
        prefetcher.advance(kTriple);
        score_few_keys<Vec, T, kTriple>(row(key), queries, run, scores + key);
    }
    prefetcher.advance(count - key);
    if (count - key == 2) score_few_keys<Vec, T, 2>(row(key), queries, run, scores + key);
    if (count - key == 1) score_few_keys<Vec, T, 1>(row(key), queries, run, scores + key);
}

}  // namespace
}  // namespace tandem

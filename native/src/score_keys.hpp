// Products of queries and keys, tile by tile.
#pragma once

#include "attention_kernel.hpp"
#include "prefetcher.hpp"
#include "score_triples.hpp"

namespace tandem {
namespace {

// Scores of kQueries queries with 4 * kLanes / kQueries keys, stored as [query][key].
//
// The last of a tile's keys are repeated where the tile has fewer (kClamp): callers overwrite them.
template <class Vec, class T, int kQueries, bool kClamp>
inline __attribute__((always_inline)) void score_keys(const T* keys, int last, const float* queries,
                                                      const AttentionRun& run, float* scores) {
    constexpr int kLanesPerQuery = Vec::kLanes / kQueries;
    constexpr int kKeys = 4 * kLanesPerQuery;
    const int dim = run.head_dim;
    typename Vec::Reg sums[4 * Vec::kLanes];
    for (auto& sum : sums) sum = Vec::zero();
    const auto row = [&](int key) -> const T* {
        return keys + static_cast<long>(kClamp && key > last ? last : key) * dim;
    };
    const auto accumulate = [&](const auto& load, int column) __attribute__((always_inline)) {
        typename Vec::Reg query[kQueries];
        for (int i = 0; i < kQueries; ++i)
            query[i] = Vec::load(queries + static_cast<long>(i) * run.padded_dim + column);
#pragma GCC unroll 16
        for (int key = 0; key < kKeys; ++key) {
            const auto values = load(row(key) + column);
#pragma GCC unroll 4
            for (int i = 0; i < kQueries; ++i) {
                auto& sum = sums[key % 4 * Vec::kLanes + i * kLanesPerQuery + key / 4];
                sum = Vec::fma(values, query[i], sum);
            }
        }
    };
    int column = 0;
    for (; column + Vec::kWidth <= dim; column += Vec::kWidth)
        accumulate([](const T* p) { return Vec::load(p); }, column);
    if (column < dim)
        accumulate([&](const T* p) { return Vec::load_part(p, dim - column); }, column);
    const auto total = Vec::sum_rows(sums);
#pragma GCC unroll 4
    for (int lane = 0; lane < Vec::kLanes; ++lane) {
        float* target = scores + lane / kLanesPerQuery * kMaxTile + lane % kLanesPerQuery * 4;
        Vec::store_lane(target, total, lane);
    }
}

template <class Vec, class T, int kQueries>
void score_tile(const T* keys, int count, int first_query, const AttentionRun& run,
                Prefetcher& prefetcher) {
    constexpr int kKeys = 4 * Vec::kLanes / kQueries;
    const float* queries = run.queries + static_cast<long>(first_query) * run.padded_dim;
    float* scores = run.scores + static_cast<long>(first_query) * kMaxTile;
    int key = 0;
    for (; key + kKeys <= count; key += kKeys) {
        prefetcher.advance(kKeys);
        score_keys<Vec, T, kQueries, false>(keys + static_cast<long>(key) * run.head_dim, 0,
                                            queries, run, scores + key);
    }
    if (key < count) {
        prefetcher.advance(kKeys);
        score_keys<Vec, T, kQueries, true>(keys + static_cast<long>(key) * run.head_dim,
                                           count - key - 1, queries, run, scores + key);
    }
}

template <class Vec, class T>
void score_queries(const T* keys, int count, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    if constexpr (Vec::kLanes >= 4)
        for (; query + 4 <= run.num_queries; query += 4)
            score_tile<Vec, T, 4>(keys, count, query, run, prefetcher);
    if constexpr (Vec::kLanes == 2)
        for (; query + kTripleQueries <= run.num_queries; query += kTripleQueries)
            score_triples<Vec, T>(keys, count, query, run, prefetcher);
    if constexpr (Vec::kLanes >= 2)
        for (; query + 2 <= run.num_queries; query += 2)
            score_tile<Vec, T, 2>(keys, count, query, run, prefetcher);
    for (; query < run.num_queries; ++query)
        score_tile<Vec, T, 1>(keys, count, query, run, prefetcher);
}

// How often `score_queries` goes through a tile.
template <class Vec>
int count_score_passes(int queries) {
    if constexpr (Vec::kLanes == 1) return queries;
    return queries / 4 + queries % 4 / 2 + queries % 2;
}

}  // namespace
}  // namespace tandem

// Weighted sums of values, tile by tile.
#pragma once

#include "attention_kernel.hpp"
#include "prefetcher.hpp"

namespace tandem {
namespace {

constexpr int kUnrolledKeys = 4;

// Adds the weighted values' columns from `column` on, kColumns vectors of kQueries queries.
template <class Vec, class T, int kQueries, int kColumns, bool kPart>
inline __attribute__((always_inline)) void add_columns(const T* values, int count, int first_query,
                                                       int column, const AttentionRun& run,
                                                       Prefetcher& prefetcher) {
    const float* weights = run.scores + static_cast<long>(first_query) * kMaxTile;
    float* target = run.sums + static_cast<long>(first_query) * run.padded_dim + column;
    typename Vec::Reg sums[kQueries][kColumns];
    for (int i = 0; i < kQueries; ++i) {
        const auto correction = Vec::broadcast(run.correction[first_query + i]);
        for (int c = 0; c < kColumns; ++c)
            sums[i][c] = Vec::mul(
                correction,
                Vec::load(target + static_cast<long>(i) * run.padded_dim + c * Vec::kWidth));
    }
    const T* row = values + column;
    const auto add = [&](int key) __attribute__((always_inline)) {
        typename Vec::Reg value[kColumns];
        for (int c = 0; c < kColumns; ++c)
            value[c] = kPart ? Vec::load_part(row, run.head_dim - column)
                             : Vec::load(row + c * Vec::kWidth);
#pragma GCC unroll 4
        for (int i = 0; i < kQueries; ++i) {
            const auto weight = Vec::broadcast(weights[static_cast<long>(i) * kMaxTile + key]);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; ++c) sums[i][c] = Vec::fma(weight, value[c], sums[i][c]);
        }
        row += run.head_dim;
    };
    int key = 0;
    for (; key + kUnrolledKeys <= count; key += kUnrolledKeys) {
        prefetcher.advance(kUnrolledKeys);
#pragma GCC unroll 4
        for (int i = 0; i < kUnrolledKeys; ++i) add(key + i);
    }
    prefetcher.advance(count - key);
    for (; key < count; ++key) add(key);
    for (int i = 0; i < kQueries; ++i)
        for (int c = 0; c < kColumns; ++c)
            Vec::store(target + static_cast<long>(i) * run.padded_dim + c * Vec::kWidth,
                       sums[i][c]);
}

// Vectors per query that `add_tile` sums at a time.
template <class Vec, int kQueries>
constexpr int kSumColumns = Vec::kColumns * (4 / kQueries > 2 ? 2 : 4 / kQueries);

template <class Vec, int kQueries>
int count_column_passes(int head_dim) {
    constexpr int kStep = kSumColumns<Vec, kQueries> * Vec::kWidth;
    return head_dim / kStep + (head_dim % kStep + Vec::kWidth - 1) / Vec::kWidth;
}

template <class Vec, class T, int kQueries>
void add_tile(const T* values, int count, int first_query, const AttentionRun& run,
              Prefetcher& prefetcher) {
    constexpr int kColumns = kSumColumns<Vec, kQueries>;
    constexpr int kStep = kColumns * Vec::kWidth;
    int column = 0;
    for (; column + kStep <= run.head_dim; column += kStep)
        add_columns<Vec, T, kQueries, kColumns, false>(values, count, first_query, column, run,
                                                       prefetcher);
    for (; column + Vec::kWidth <= run.head_dim; column += Vec::kWidth)
        add_columns<Vec, T, kQueries, 1, false>(values, count, first_query, column, run,
                                                prefetcher);
    if (column < run.head_dim)
        add_columns<Vec, T, kQueries, 1, true>(values, count, first_query, column, run, prefetcher);
}

template <class Vec, class T>
void add_queries(const T* values, int count, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    for (; query + 4 <= run.num_queries; query += 4)
        add_tile<Vec, T, 4>(values, count, query, run, prefetcher);
    for (; query + 2 <= run.num_queries; query += 2)
        add_tile<Vec, T, 2>(values, count, query, run, prefetcher);
    for (; query < run.num_queries; ++query)
        add_tile<Vec, T, 1>(values, count, query, run, prefetcher);
}

// How often `add_queries` goes through a tile.
template <class Vec>
int count_add_passes(int queries, int head_dim) {
    return queries / 4 * count_column_passes<Vec, 4>(head_dim) +
           queries % 4 / 2 * count_column_passes<Vec, 2>(head_dim) +
           queries % 2 * count_column_passes<Vec, 1>(head_dim);
}

}  // namespace
}  // namespace tandem

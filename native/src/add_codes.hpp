// Weighted sums of quantized values.
#pragma once

#include "attention_kernel.hpp"
#include "code_fields.hpp"
#include "prefetcher.hpp"

namespace tandem {
namespace {

// Fields of a load that are summed at a time, so that sums stay in registers.
template <class Fields, int kQueries>
constexpr int kFieldsAtOnce =
    Fields::kFields < 4 * Fields::Vec::kColumns / kQueries ? Fields::kFields
                                                           : 4 * Fields::Vec::kColumns / kQueries;

// Weights times scales of kQueries queries, and what minima contribute to each of their sums.
template <int kQueries>
struct GroupWeights {
    alignas(kAlignment) float scaled[kQueries][kMaxTile];
    float base[kQueries];
};

template <class Vec, int kQueries>
void fold_scales(const float* weights, const CodeGroup& values, GroupWeights<kQueries>& result) {
    typename Vec::Reg base[kQueries];
    for (auto& sum : base) sum = Vec::zero();
    for (int at = 0; at < values.count; at += Vec::kWidth) {  // weights are 0 beyond
        const auto scale = load_tokens<Vec>(values.scales + at, values.count - at);
        const auto minimum = load_tokens<Vec>(values.minima + at, values.count - at);
        for (int i = 0; i < kQueries; ++i) {
            const auto weight = Vec::load(weights + i * kMaxTile + at);
            Vec::store(result.scaled[i] + at, Vec::mul(weight, scale));
            base[i] = Vec::fma(weight, minimum, base[i]);
        }
    }
    for (int i = 0; i < kQueries; ++i) result.base[i] = Vec::sum(base[i]);
}

// Adds kCount fields from kFirst on of the codes at `codes` to the sums from `target` on.
template <class Fields, int kQueries, int kFirst, int kCount>
inline __attribute__((always_inline)) void add_fields(
    const unsigned char* codes, int row_bytes, int count, const GroupWeights<kQueries>& weights,
    int first_query, float* target, const AttentionRun& run, Prefetcher& prefetcher) {
    using Vec = typename Fields::Vec;
    typename Vec::Reg sums[kQueries][kCount];
    for_each_field<kCount>([&]<int kField>() __attribute__((always_inline)) {
        const auto grown = Vec::broadcast(Fields::grown(kFirst + kField));
        for (int i = 0; i < kQueries; ++i) {
            const float* old =
                target + static_cast<long>(i) * run.padded_dim + kField * Vec::kWidth;
            const auto base = Vec::mul(Vec::broadcast(weights.base[i]), grown);
            sums[i][kField] =
                Vec::fma(Vec::broadcast(run.correction[first_query + i]), Vec::load(old), base);
        }
    });
    const auto add = [&](int key) __attribute__((always_inline)) {
        const auto lanes = Vec::template load_lanes<Fields::kLaneBytes>(codes);
        typename Vec::Reg value[kCount];
        for_each_field<kCount>([&]<int kField>() __attribute__((always_inline)) {
            value[kField] = Fields::template value<kFirst + kField>(lanes);
        });
#pragma GCC unroll 4
        for (int i = 0; i < kQueries; ++i) {
            const auto weight = Vec::broadcast(weights.scaled[i][key]);
#pragma GCC unroll 8
            for (int c = 0; c < kCount; ++c) sums[i][c] = Vec::fma(weight, value[c], sums[i][c]);
        }
        codes += row_bytes;
    };
    int key = 0;
    for (; key + 8 <= count; key += 8) {
        prefetcher.advance(8);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) add(key + i);
    }
    prefetcher.advance(count - key);
    for (; key < count; ++key) add(key);
    for (int i = 0; i < kQueries; ++i)
        for (int c = 0; c < kCount; ++c)
            Vec::store(target + static_cast<long>(i) * run.padded_dim + c * Vec::kWidth,
                       sums[i][c]);
}

// Adds a group's part to the sums of kQueries queries.
template <class Fields, int kQueries>
void add_group(const CodeGroup& values, int first_query, const AttentionRun& run,
               Prefetcher& prefetcher) {
    using Vec = typename Fields::Vec;
    constexpr int kAtOnce = kFieldsAtOnce<Fields, kQueries>;
    GroupWeights<kQueries> weights;
    fold_scales<Vec>(run.scores + static_cast<long>(first_query) * kMaxTile, values, weights);
    for (int at = 0; at < Fields::kGroup; at += Fields::kLoadElements) {
        float* sums = run.sums + static_cast<long>(first_query) * run.padded_dim +
                      values.index * Fields::kGroup + at;
        for_each_field<Fields::kFields / kAtOnce>([&]<int kPart>() __attribute__((always_inline)) {
            add_fields<Fields, kQueries, kPart * kAtOnce, kAtOnce>(
                values.codes + at * Fields::kBits / 8, values.row_bytes, values.count, weights,
                first_query, sums + kPart * kAtOnce * Vec::kWidth, run, prefetcher);
        });
    }
}

template <class Fields>
void add_codes(const CodeGroup& values, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    for (; query + 4 <= run.num_queries; query += 4)
        add_group<Fields, 4>(values, query, run, prefetcher);
    for (; query + 2 <= run.num_queries; query += 2)
        add_group<Fields, 2>(values, query, run, prefetcher);
    for (; query < run.num_queries; ++query) add_group<Fields, 1>(values, query, run, prefetcher);
}

// Puts one query's sums, which are in the order of loads, fields and lanes, into that of elements.
template <class Fields>
void reorder_sums(int elements, float* sums) {
    constexpr int kLanes = Fields::Vec::kWidth, kBits = Fields::kBits;
    float ordered[kMaxCodeDim];
    const float* sum = sums;
    for (int load = 0; load < elements / Fields::kLoadElements; ++load)
        for (int field = 0; field < Fields::kFields; ++field) {
            const float shrink = 1.0f / Fields::grown(field);
            const int first = load * Fields::kLoadBytes * 8 + field * kBits;
            for (int lane = 0; lane < kLanes; ++lane, ++sum)
                ordered[element_at<kBits>(first + lane * Fields::kLaneBytes * 8)] = *sum * shrink;
        }
    for (int i = 0; i < elements; ++i) sums[i] = ordered[i];
}

// How often `add_codes` goes through a group.
template <class Fields>
int count_value_passes(int queries) {
    const int per_group = queries / 4 * (Fields::kFields / kFieldsAtOnce<Fields, 4>)+queries % 4 /
                          2 * (Fields::kFields / kFieldsAtOnce<Fields, 2>)+queries % 2 *
                          (Fields::kFields / kFieldsAtOnce<Fields, 1>);
    return per_group * (Fields::kGroup / Fields::kLoadElements);
}

}  // namespace
}  // namespace tandem

// Attention of a few queries over paged keys, written once over a vector type `Vec`.
//
// Included by one source per instruction set. Nothing here may come from the standard library's
// inline functions: the linker keeps one copy of those for all instruction sets.
//
// A page's keys are read for all KV heads, then its values: memory delivers long runs half as fast
// again as runs of one head. Within a head, work goes through tiles that stay in the first-level
// cache; while a tile is worked on, the next is prefetched.
#pragma once

#include "attention_kernel.hpp"
#include "code_rows.hpp"
#include "float_rows.hpp"
#include "head_run.hpp"
#include "simd/element.hpp"
#include "weigh_scores.hpp"

namespace tandem {
namespace {

void clear(const AttentionRun& run) {
    const long queries = static_cast<long>(run.kv_heads) * run.num_queries;
    for (long i = 0; i < queries; ++i) run.max[i] = kMinusInfinity;
    for (long i = 0; i < queries; ++i) run.weight[i] = 0.0f;
    for (long i = 0; i < queries * run.padded_dim; ++i) run.sums[i] = 0.0f;
}

// `Rows` finds keys and values in the pages and reads them.
template <class Rows>
void attend_run(const AttentionRun& run) {
    clear(run);
    const Rows rows(run);
    for (int key = run.begin; key < run.end;) {
        const int left = run.block_size - key % run.block_size;
        int count = left < kMaxTile ? left : kMaxTile;
        if (count > run.end - key) count = run.end - key;
        const int following = key + count;
        for (int head = 0; head < run.kv_heads; ++head) {
            const AttentionRun own = of_head(run, head);
            const bool last = head + 1 == run.kv_heads;
            rows.score(rows.keys(key, head), count, own,
                       last ? rows.values(key, 0) : rows.keys(key, head + 1));
            for (int i = 0; i < run.num_queries; ++i)
                weigh_tile<typename Rows::Vector>(i, key, count, own);
        }
        const auto after = following < run.end ? rows.keys(following, 0) : rows.next();
        for (int head = 0; head < run.kv_heads; ++head) {
            const bool last = head + 1 == run.kv_heads;
            rows.add(rows.values(key, head), count, of_head(run, head),
                     last ? after : rows.values(key, head + 1));
        }
        key = following;
    }
    rows.finish();
}

template <class Vec>
void add_states(const StateSum& s) {
    constexpr int kVectors = kPadDim / Vec::kWidth;
    for (int column = 0; column < s.head_dim; column += kPadDim) {
        typename Vec::Reg sums[kVectors];
        for (int v = 0; v < kVectors; ++v) sums[v] = Vec::zero();
        const float* from = s.sums + column;
        for (int i = 0; i < s.count; ++i, from += s.stride) {
            const auto factor = Vec::broadcast(s.factors[i]);
            for (int v = 0; v < kVectors; ++v)
                sums[v] = Vec::fma(factor, Vec::load(from + v * Vec::kWidth), sums[v]);
        }
        for (int v = 0; v < kVectors; ++v) {
            const int at = column + v * Vec::kWidth, left = s.head_dim - at;
            if (left >= Vec::kWidth)
                Vec::store(s.out + at, sums[v]);
            else if (left > 0)
                Vec::store_part(s.out + at, sums[v], left);
        }
    }
}

// Lanes of a load that covers as much of a group as fits.
template <class Vec, int kBits, int kGroup>
constexpr int kGroupLaneBytes =
    kGroup * kBits / 8 / Vec::kWidth < 4 ? kGroup * kBits / 8 / Vec::kWidth : 4;

template <class Vec, int kBits, int kGroup>
constexpr AttendRun kAttendCodes =
    attend_run<CodeRows<Vec, kBits, kGroupLaneBytes<Vec, kBits, kGroup>, kGroup>>;

template <class Vec>
constexpr AttentionKernels make_kernels() {
    return {attend_run<FloatRows<Vec, float>>,
            attend_run<FloatRows<Vec, Half>>,
            attend_run<FloatRows<Vec, BFloat>>,
            attend_run<FloatRows<Vec, Float8>>,
            kAttendCodes<Vec, 8, 64>,
            kAttendCodes<Vec, 4, 64>,
            kAttendCodes<Vec, 8, 32>,
            kAttendCodes<Vec, 4, 32>,
            add_states<Vec>};
}

}  // namespace
}  // namespace tandem

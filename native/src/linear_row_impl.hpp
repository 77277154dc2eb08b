// Products of one or two rows of x with weights of floats, over a vector type `Vec`: bound by
// memory, so weights are read strictly in the order in which they lie. Four rows of weights at a
// time, which the tiles of more rows of x take, reach two thirds of that rate where rows are short.
// For sources per instruction set: nothing from the standard library's inline functions.
#pragma once

#include "linear_tile_impl.hpp"

namespace tandem {
namespace {

constexpr int kRowSums = 8;  // enough to hide an addition's latency
// Bytes; to the second-level cache: asked for nearer, or to the first, weights in huge pages were
// read at two thirds of the rate.
constexpr long kRowAhead = 12288;

// One row of weights with kColumns rows of x.
template <class Vec, class T, int kColumns>
void stream_row(const StreamRun& run, int row) {
    constexpr int kSums = kRowSums / kColumns;
    constexpr int kStep = kSums * Vec::kWidth;
    const T* weights = static_cast<const T*>(run.weights.data) +
                       static_cast<long>(row) * run.weights.inputs + run.first;
    const float* x = run.x + run.first;
    typename Vec::Reg sums[kColumns][kSums];
    for (auto& column : sums)
        for (auto& sum : column) sum = Vec::zero();
    const auto add = [&](const auto& load, int i, int sum) __attribute__((always_inline)) {
        const auto weight = load(weights + i);
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c)
            sums[c][sum] = Vec::fma(weight, load(x + c * run.x_stride + i), sums[c][sum]);
    };
    const auto whole = [](const auto* p) { return Vec::load(p); };
    int i = 0;
    for (; i + kStep <= run.count; i += kStep) {
        const char* ahead = reinterpret_cast<const char*>(weights + i) + kRowAhead;
#pragma GCC unroll 8
        for (int byte = 0; byte < kStep * static_cast<int>(sizeof(T)); byte += kLine)
            __builtin_prefetch(ahead + byte, 0, 2);
#pragma GCC unroll 8
        for (int sum = 0; sum < kSums; ++sum) add(whole, i + sum * Vec::kWidth, sum);
    }
    for (; i + Vec::kWidth <= run.count; i += Vec::kWidth) add(whole, i, 0);
    if (i < run.count) add([&](const auto* p) { return Vec::load_part(p, run.count - i); }, i, 0);
    for (int c = 0; c < kColumns; ++c) {
        auto total = sums[c][0];
        for (int sum = 1; sum < kSums; ++sum) total = Vec::add(total, sums[c][sum]);
        float& out = run.out[c * run.out_stride + row];
        out = (run.adds ? out : 0.0f) + Vec::sum(total);
    }
}

template <class Vec, class T, int kColumns>
void stream_rows(const StreamRun& run) {
    for (int row = 0; row < run.weights.count; ++row) stream_row<Vec, T, kColumns>(run, row);
}

}  // namespace
}  // namespace tandem

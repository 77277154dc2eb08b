// Products of one or two rows of x with weights of floats, over a vector type `Vec`: bound by
// memory. Weight rows are read as a few strips at once, each in the order in which it lies: a core
// has more of memory under way at a time than it asks for ahead of a single strip. For sources per
// instruction set: nothing from the standard library's inline functions.
#pragma once

#include "linear_tile_impl.hpp"

namespace tandem {
namespace {

constexpr int kStrips = 4;
constexpr int kRowSums = 8;  // enough to hide an addition's latency
// Bytes, of each strip. Four times as far, or of a single strip, it was slower.
constexpr long kRowAhead = 1024;

// kRows rows of weights, `apart` rows from one to the next, with kColumns rows of x.
template <class Vec, class T, int kRows, int kColumns>
void stream_strips(const StreamRun& run, int row, int apart) {
    constexpr int kSums = kRowSums / (kRows * kColumns);
    constexpr int kStep = kSums * Vec::kWidth;
    constexpr int kStepBytes = kStep * static_cast<int>(sizeof(T));
    const long stride = static_cast<long>(apart) * run.weights.inputs;
    const T* weights = static_cast<const T*>(run.weights.data) +
                       static_cast<long>(row) * run.weights.inputs + run.first;
    const float* x = run.x + run.first;
    typename Vec::Reg sums[kRows][kColumns][kSums];
    for (auto& columns : sums)
        for (auto& column : columns)
            for (auto& sum : column) sum = Vec::zero();
    const auto add = [&](const auto& load, int i, int sum) __attribute__((always_inline)) {
        typename Vec::Reg of_x[kColumns];
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c) of_x[c] = load(x + c * run.x_stride + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            const auto weight = load(weights + r * stride + i);
#pragma GCC unroll 2
            for (int c = 0; c < kColumns; ++c)
                sums[r][c][sum] = Vec::fma(weight, of_x[c], sums[r][c][sum]);
        }
    };
    const auto whole = [](const auto* p) { return Vec::load(p); };
    // Of every line once: steps of less ask for it when they begin it.
    const auto ask = [&](int i) __attribute__((always_inline)) {
        if (kStepBytes < kLine && i * static_cast<long>(sizeof(T)) % kLine != 0) return;
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            const char* ahead = reinterpret_cast<const char*>(weights + r * stride + i) + kRowAhead;
#pragma GCC unroll 8
            for (int byte = 0; byte < kStepBytes; byte += kLine)
                __builtin_prefetch(ahead + byte, 0, 3);
        }
    };
    int i = 0;
    for (; i + kStep <= run.count; i += kStep) {
        ask(i);
#pragma GCC unroll 8
        for (int sum = 0; sum < kSums; ++sum) add(whole, i + sum * Vec::kWidth, sum);
    }
    for (; i + Vec::kWidth <= run.count; i += Vec::kWidth) add(whole, i, 0);
    if (i < run.count) add([&](const auto* p) { return Vec::load_part(p, run.count - i); }, i, 0);
    for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kColumns; ++c) {
            auto total = sums[r][c][0];
            for (int sum = 1; sum < kSums; ++sum) total = Vec::add(total, sums[r][c][sum]);
            float& out = run.out[c * run.out_stride + row + r * apart];
            out = (run.adds ? out : 0.0f) + Vec::sum(total);
        }
}

template <class Vec, class T, int kColumns>
void stream_rows(const StreamRun& run) {
    const int apart = run.weights.count / kStrips;
    for (int row = 0; row < apart; ++row) stream_strips<Vec, T, kStrips, kColumns>(run, row, apart);
    for (int row = kStrips * apart; row < run.weights.count; ++row)
        stream_strips<Vec, T, 1, kColumns>(run, row, 1);
}

}  // namespace
}  // namespace tandem

// Products of a few rows of x with weights that go through registers once, over a vector type
// `Vec`. For sources per instruction set: nothing from the standard library's inline functions.
#pragma once

#include "linear_groups_impl.hpp"
#include "linear_row_impl.hpp"
#include "linear_tile_impl.hpp"

namespace tandem {
namespace {

// kRows rows of weights with kColumns rows of x.
template <class Vec, class T, int kRows, int kColumns>
void stream_floats(const StreamRun& run, TileAt at) {
    constexpr int kStep = kLine / sizeof(T);
    const long stride = run.weights.inputs;
    const T* weights = static_cast<const T*>(run.weights.data) + at.row * stride + run.first;
    const float* columns = run.x + at.column * run.x_stride + run.first;
    const RowPrefetcher<kRows> prefetcher(weights, run.weights.row_bytes,
                                          run.count * static_cast<long>(sizeof(T)));
    Sums<Vec, kRows, kColumns> sums;
    const auto accumulate = [&](const auto& load_x, const auto& load_weight, int i)
                                __attribute__((always_inline)) {
                                    typename Vec::Reg w[kRows];
#pragma GCC unroll 4
                                    for (int row = 0; row < kRows; ++row)
                                        w[row] = load_weight(weights + row * stride + i);
#pragma GCC unroll 6
                                    for (int c = 0; c < kColumns; ++c) {
                                        const auto x = load_x(columns + c * run.x_stride + i);
#pragma GCC unroll 4
                                        for (int row = 0; row < kRows; ++row)
                                            sums.of[row][c] = Vec::fma(w[row], x, sums.of[row][c]);
                                    }
                                };
    const auto whole_x = [](const float* p) { return Vec::load(p); };
    const auto whole_weight = [](const T* p) { return Vec::load(p); };
    int i = 0;
    for (; i + kStep <= run.count; i += kStep) {
        prefetcher.at(i * static_cast<long>(sizeof(T)));
#pragma GCC unroll 8
        for (int v = 0; v < kStep; v += Vec::kWidth) accumulate(whole_x, whole_weight, i + v);
    }
    for (; i + Vec::kWidth <= run.count; i += Vec::kWidth) accumulate(whole_x, whole_weight, i);
    if (i < run.count) {
        const int rest = run.count - i;
        accumulate([&](const float* p) { return Vec::load_part(p, rest); },
                   [&](const T* p) { return Vec::load_part(p, rest); }, i);
    }
    sums.write(run, at);
}

template <class T>
constexpr bool kIsQuantized = false;
template <>
constexpr bool kIsQuantized<Byte> = true;
template <>
constexpr bool kIsQuantized<Nibbles> = true;

template <class Vec, class T>
struct StreamTile {
    template <int kRows, int kColumns>
    static void run(const StreamRun& run, TileAt at) {
        if constexpr (kIsQuantized<T>)
            stream_groups<Vec, T, kRows, kColumns>(run, at);
        else
            stream_floats<Vec, T, kRows, kColumns>(run, at);
    }
};

template <class Vec, class T>
void stream(const StreamRun& run) {
    using Tile = StreamTile<Vec, T>;
    if constexpr (kIsQuantized<T>) {
        if (run.rows == 1) return tile_all<Tile, 1, 1>(run);
        if (run.rows == 2) return tile_all<Tile, 4, 2>(run);
    } else {
        if (run.rows == 1) return stream_rows<Vec, T, 1>(run);
        if (run.rows == 2) return stream_rows<Vec, T, 2>(run);
    }
    tile_all<Tile, 3, 4>(run);
}

}  // namespace
}  // namespace tandem

// Products of a few rows of x with quantized weights that go through registers once, over a vector
// type `Vec`. For sources per instruction set: nothing from the standard library's inline
// functions.
#pragma once

#include "linear_tile_impl.hpp"

namespace tandem {
namespace {

struct Nibbles {};  // stands for the type of int4 weights

template <class T>
constexpr int kRunBytes = 32;  // of 32 weights
template <>
constexpr int kRunBytes<Nibbles> = 16;

// Calls use(index, weights[kRows]) for each vector of 32 weights of some rows.
template <class Vec, int kRows, class Use>
inline __attribute__((always_inline)) void each_vector(const Byte* at, long row_bytes, const Byte*,
                                                       const Use& use) {
#pragma GCC unroll 8
    for (int i = 0; i < 32; i += Vec::kWidth) {
        typename Vec::Reg q[kRows];
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) q[row] = Vec::load(at + row * row_bytes + i);
        use(i, q);
    }
}
template <class Vec, int kRows, class Use>
inline __attribute__((always_inline)) void each_vector(const Byte* at, long row_bytes,
                                                       const Nibbles*, const Use& use) {
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += Vec::kWidth) {
        typename Vec::Reg low[kRows], high[kRows];
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row)
            Vec::load_nibbles(at + row * row_bytes + i, low[row], high[row]);
        use(i, low);
        use(i + 16, high);
    }
}

// The weights of some rows at the start of a block, group by group.
template <class Vec, class T, int kRows>
struct GroupRows {
    const Byte* weights;
    const Half* scales;
    const std::uint8_t* zeros;
    long groups;  // of a row
    int block_groups;

    template <class Run>
    GroupRows(const Run& run, int row)
        : weights(static_cast<const Byte*>(run.weights.data) + row * run.weights.row_bytes +
                  run.first / 32 * static_cast<long>(kRunBytes<T>)),
          groups(run.weights.groups),
          block_groups(run.count / run.weights.group) {
        const long group = row * groups + run.first / run.weights.group;
        scales = reinterpret_cast<const Half*>(run.weights.scales) + group;
        zeros = run.weights.zeros + group;
    }

    auto scale(int row, int group) const { return Vec::broadcast(scales + row * groups + group); }

    // What the zeros of all groups, less `offset`, take away; a vector holds groups.
    template <int kColumns>
    void add_zeros(const float* x_sums, float offset, Sums<Vec, kRows, kColumns>& sums) const {
        for (int g = 0; g < block_groups; g += Vec::kWidth) {
            const int left = block_groups - g;
            const auto load = [&](const auto* p) {
                return left < Vec::kWidth ? Vec::load_part(p + g, left) : Vec::load(p + g);
            };
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row) {
                const auto* zero = reinterpret_cast<const Byte*>(zeros) + row * groups;
                const auto steps = Vec::mul(load(scales + row * groups),
                                            Vec::sub(load(zero), Vec::broadcast(offset)));
#pragma GCC unroll 4
                for (int c = 0; c < kColumns; ++c)
                    sums.of[row][c] = Vec::fma(steps, load(x_sums + c * groups), sums.of[row][c]);
            }
        }
    }
};

// A row's product is the sum over groups of s (sum of q x - z sum of x): whole numbers are
// converted, but not scaled.
template <class Vec, class T, int kRows, int kColumns>
void stream_groups(const StreamRun& run, TileAt at) {
    const GroupRows<Vec, T, kRows> rows(run, at.row);
    const long row_bytes = run.weights.row_bytes;
    const RowPrefetcher<kRows> prefetcher(rows.weights, row_bytes,
                                          run.count / 32 * static_cast<long>(kRunBytes<T>));
    Sums<Vec, kRows, kColumns> sums;
    const float* x_sums = run.sums + at.column * rows.groups + run.first / run.weights.group;
    rows.add_zeros(x_sums, 0.0f, sums);
    const Byte* weights = rows.weights;
    const float* x = run.x + at.column * run.x_stride + run.first;
    for (int g = 0; g < rows.block_groups; ++g) {
        Sums<Vec, kRows, kColumns> part;
        for (int i = 0; i < run.weights.group; i += 32, x += 32, weights += kRunBytes<T>) {
            prefetcher.at(weights - rows.weights);
            const auto use = [&](int v, const auto* q) __attribute__((always_inline)) {
#pragma GCC unroll 4
                for (int c = 0; c < kColumns; ++c) {
                    const auto column = Vec::load(x + c * run.x_stride + v);
#pragma GCC unroll 4
                    for (int row = 0; row < kRows; ++row)
                        part.of[row][c] = Vec::fma(q[row], column, part.of[row][c]);
                }
            };
            each_vector<Vec, kRows>(weights, row_bytes, static_cast<const T*>(nullptr), use);
        }
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
            const auto scale = rows.scale(row, g);
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c)
                sums.of[row][c] = Vec::fma(scale, part.of[row][c], sums.of[row][c]);
        }
    }
    sums.write(run, at);
}

template <class Vec>
void sum_groups(const SumRun& run) {
    const float* x = run.x;
    for (int g = 0; g < run.groups; ++g, x += run.group) {
        auto sum = Vec::zero();
        for (int i = 0; i < run.group; i += Vec::kWidth) sum = Vec::add(sum, Vec::load(x + i));
        run.sums[g] = -Vec::sum(sum);
    }
}

}  // namespace
}  // namespace tandem

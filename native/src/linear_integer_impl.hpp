// Products of int8 weights with x rounded to 8 bits, over a type `Dots`: sums of whole products,
// and the vector type of what comes after. For sources per instruction set: nothing from the
// standard library's inline functions.
//
// A group's sum is exact, in 32 bits; only x was rounded.
#pragma once

#include "linear_groups_impl.hpp"
#include "linear_integer.hpp"
#include "linear_tile_impl.hpp"

namespace tandem {
namespace {

constexpr float kLargestCode = 127.0f;
constexpr float kLeastSpan = 0x1p-100f;  // below it, 127 over the largest might be infinite

template <class Code>
void round_group(const float* x, int count, Code* codes, float* scale, float* sum) {
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) {
        const float size = __builtin_fabsf(x[i]);
        largest = size > largest || size != size ? size : largest;  // NaN stays
    }
    const bool is_zero = largest < kLeastSpan;
    const float per_step = is_zero ? 0.0f : kLargestCode / largest;
    int total = 0;
    for (int i = 0; i < count; ++i) {
        // Adding 1.5 * 2^23 leaves the nearest whole number in the lowest bits.
        const float shifted = x[i] * per_step + 0x1.8p23f;
        std::int32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        codes[i] = static_cast<Code>(static_cast<std::int8_t>(bits));
        total += codes[i];
    }
    *scale = is_zero ? 0.0f : largest / kLargestCode;
    *sum = -*scale * static_cast<float>(total);
}

template <class Dots>
void round_row(const RoundRun& run) {
    auto* codes = static_cast<typename Dots::Code*>(run.codes);
    for (int g = 0; g < run.groups; ++g)
        round_group(run.x + g * run.group, run.group, codes + g * run.group, run.scales + g,
                    run.sums + g);
}

template <class Dots>
struct IntegerTile {
    using Vec = typename Dots::Vec;

    template <int kRows, int kColumns>
    static void run(const IntegerRun& run, TileAt at) {
        const GroupRows<Vec, Byte, kRows> rows(run, at.row);
        const long row_bytes = run.weights.row_bytes;
        const RowPrefetcher<kRows> prefetcher(rows.weights, row_bytes, run.count);
        Sums<Vec, kRows, kColumns> sums;
        const long group = at.column * rows.groups + run.first / run.weights.group;
        const float* x_scales = run.scales + group;
        rows.add_zeros(run.sums + group, Dots::kOffset, sums);
        const Byte* weights = rows.weights;
        const auto* x = static_cast<const typename Dots::Code*>(run.x) + run.first +
                        at.column * static_cast<long>(run.weights.inputs);
        for (int g = 0; g < rows.block_groups; ++g) {
            typename Dots::Sum part[kRows][kColumns];
            for (auto& row : part)
                for (auto& sum : row) sum = Dots::zero();
            for (int left = run.weights.group, step; left > 0; left -= step) {
                step = Dots::kStep > 32 && left < Dots::kStep ? left : kRun;
                prefetcher.at(weights - rows.weights);
                add_products(weights, row_bytes, x, run.weights.inputs, left, part);
                weights += step;
                x += step;
            }
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) {
                const auto x_scale = Vec::broadcast(x_scales[c * rows.groups + g]);
#pragma GCC unroll 4
                for (int row = 0; row < kRows; ++row)
                    sums.of[row][c] = Vec::fma(Vec::mul(rows.scale(row, g), x_scale),
                                               Dots::floats(part[row][c]), sums.of[row][c]);
            }
        }
        sums.write(run, at);
    }

    static constexpr int kRun = Dots::kStep > 32 ? Dots::kStep : 32;

    // Of kRun inputs, or the group's last `left` where these are fewer.
    template <int kRows, int kColumns>
    static inline __attribute__((always_inline)) void add_products(
        const Byte* weights, long row_bytes, const typename Dots::Code* x, long x_stride, int left,
        typename Dots::Sum (&part)[kRows][kColumns]) {
        // Unrolled, the compiler would add up products first, and keep the sums in memory.
#pragma GCC unroll 1
        for (int i = 0; i < kRun; i += Dots::kStep) {
            typename Dots::Weights w[kRows];
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row)
                w[row] = Dots::load(weights + row * row_bytes + i, left);
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) {
                const auto column = Dots::load(x + c * x_stride + i, left);
#pragma GCC unroll 4
                for (int row = 0; row < kRows; ++row)
                    part[row][c] = Dots::add_dots(part[row][c], w[row], column);
            }
        }
    }
};

template <class Dots>
void multiply_integers(const IntegerRun& run) {
    using Tile = IntegerTile<Dots>;
    if (run.rows == 1) return tile_all<Tile, 4, 1>(run);
    tile_all<Tile, Dots::kRows, Dots::kColumns>(run);
}

template <class Dots>
constexpr IntegerKernels make_integer_kernels() {
    return {.code_bytes = sizeof(typename Dots::Code),
            .round = round_row<Dots>,
            .multiply = multiply_integers<Dots>};
}

}  // namespace
}  // namespace tandem

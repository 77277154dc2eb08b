// Products of many rows of x with blocks of weights, over a vector type `Vec`.
// For sources per instruction set: nothing from the standard library's inline functions.
//
// x lies in panels of up to two vectors of rows for each input, which stay in the first-level cache
// with a block of inputs; weights are converted a block at a time, and broadcast. So neither needs
// its rows turned into columns but x, which is the smaller.
#pragma once

#include "linear_groups_impl.hpp"
#include "linear_kernel.hpp"

namespace tandem {
namespace {

// Asks for runs of bytes in a matrix, line by line, evenly over a number of steps: asked for at
// once, they would wait for the processor's few buffers.
class BlockPrefetcher {
  public:
    BlockPrefetcher(const PanelRun& run, long steps)
        : at_(run.next),
          run_end_(run.next + run.next_bytes),
          skip_(run.next_stride - (run.next_bytes + kLine - 1) / kLine * kLine),
          run_(run),
          left_(run.next ? (run.next_bytes + kLine - 1) / kLine * static_cast<long>(run.next_rows)
                         : 0),
          per_step_(left_ / steps + 1) {}

    void advance() {
        const long count = left_ < per_step_ ? left_ : per_step_;
        left_ -= count;
        for (long i = 0; i < count; ++i) {
            __builtin_prefetch(at_, 0, 2);
            at_ += kLine;
            if (at_ >= run_end_) {
                at_ += skip_;
                run_end_ += run_.next_stride;
            }
        }
    }

  private:
    const char* at_;
    const char* run_end_;
    long skip_;
    const PanelRun& run_;
    long left_;
    long per_step_;
};

constexpr int kPrefetchInputs = 32;  // between steps of the prefetcher

// kRows weights with kVectors vectors of rows of x.
template <class Vec, int kRows, int kVectors>
void multiply_tile(const PanelRun& run, const float* weights, const float* x, float* sums,
                   BlockPrefetcher& prefetcher) {
    typename Vec::Reg total[kRows][kVectors];
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
            total[row][v] =
                run.adds ? Vec::load(sums + row * run.sums_stride + v * Vec::kWidth) : Vec::zero();
    for (int begin = 0; begin < run.inputs; begin += kPrefetchInputs) {
        prefetcher.advance();
        const int left = run.inputs - begin;
        const int count = left < kPrefetchInputs ? left : kPrefetchInputs;
#pragma GCC unroll 2
        for (int i = 0; i < count; ++i, ++weights, x += kVectors * Vec::kWidth) {
            typename Vec::Reg columns[kVectors];
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) columns[v] = Vec::load(x + v * Vec::kWidth);
#pragma GCC unroll 12
            for (int row = 0; row < kRows; ++row) {
                const auto weight = Vec::broadcast(weights[row * kUnpackedStride]);
#pragma GCC unroll 2
                for (int v = 0; v < kVectors; ++v)
                    total[row][v] = Vec::fma(weight, columns[v], total[row][v]);
            }
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
            Vec::store(sums + row * run.sums_stride + v * Vec::kWidth, total[row][v]);
}

template <class Vec>
void multiply(const PanelRun& run) {
    constexpr int kWide = 2 * Vec::kWidth;
    constexpr int kWideRows =
        Vec::kWidth == 16 ? 12 : 6;  // as many sums as there are registers for
    const int wide_panels = run.padded_rows / kWide;
    const bool has_narrow = run.padded_rows % kWide != 0;
    const long tiles = static_cast<long>(wide_panels) * (run.count / kWideRows) +
                       (has_narrow ? run.count / kTileStep : 0);
    BlockPrefetcher prefetcher(run, tiles * ((run.inputs + kPrefetchInputs - 1) / kPrefetchInputs));
    const float* x = run.x;
    float* sums = run.sums;
    for (int panel = 0; panel < wide_panels;
         ++panel, x += static_cast<long>(run.inputs) * kWide, sums += kWide)
        for (int row = 0; row < run.count; row += kWideRows)
            multiply_tile<Vec, kWideRows, 2>(run, run.weights + row * kUnpackedStride, x,
                                             sums + row * run.sums_stride, prefetcher);
    if (!has_narrow) return;
    for (int row = 0; row < run.count; row += kTileStep)
        multiply_tile<Vec, kTileStep, 1>(run, run.weights + row * kUnpackedStride, x,
                                         sums + row * run.sums_stride, prefetcher);
}

// Four floats of each of kWidth rows, from byte `at` on: the i-th of all rows at out + i * stride.
template <class Vec>
void turn_four(const unsigned char* const (&rows)[Vec::kWidth], int at, float* out, long stride) {
    typename Vec::Ints columns[4];
    Vec::load_columns(rows, at, columns);
    for (int i = 0; i < 4; ++i) __builtin_memcpy(out + i * stride, &columns[i], sizeof columns[i]);
}

// One vector of rows of a panel that is `width` wide; the last row of x stands for those beyond it.
template <class Vec>
void pack_vector(const PackRun& run, int first, float* panel, int width) {
    const float* floats[Vec::kWidth];
    const unsigned char* rows[Vec::kWidth];
    for (int j = 0; j < Vec::kWidth; ++j) {
        const int row = first + j < run.rows ? first + j : run.rows - 1;
        floats[j] = run.x + row * run.x_stride + run.first;
        rows[j] = reinterpret_cast<const unsigned char*>(floats[j]);
    }
    int i = 0;
    for (; i + 4 <= run.count; i += 4)
        turn_four<Vec>(rows, i * int{sizeof(float)}, panel + i * width, width);
    for (; i < run.count; ++i)
        for (int j = 0; j < Vec::kWidth; ++j) panel[i * width + j] = floats[j][i];
}

template <class Vec>
void pack(const PackRun& run) {
    float* panel = run.out;
    for (int first = 0; first < run.rows; first += 2 * Vec::kWidth) {
        const int width = run.rows - first > Vec::kWidth ? 2 * Vec::kWidth : Vec::kWidth;
        for (int v = 0; v < width; v += Vec::kWidth)
            pack_vector<Vec>(run, first + v, panel + v, width);
        panel += static_cast<long>(width) * run.count;
    }
}

template <class Vec>
void turn(const TurnRun& run) {
    for (int first = 0; first < run.count; first += Vec::kWidth) {
        const unsigned char* rows[Vec::kWidth];
        for (int j = 0; j < Vec::kWidth; ++j) {
            const int row = first + j < run.count ? first + j : run.count - 1;
            rows[j] = reinterpret_cast<const unsigned char*>(run.sums + row * run.sums_stride);
        }
        turn_four<Vec>(rows, 0, run.lines + first, run.line_stride);
    }
}

constexpr int kUnpackAhead = 4;  // rows

template <class Vec, class T>
void unpack_floats(const UnpackRun& run) {
    for (int row = 0; row < run.weights.count; ++row) {
        const char* bytes =
            static_cast<const char*>(run.weights.data) + row * run.weights.row_bytes;
        const T* source = reinterpret_cast<const T*>(bytes) + run.first;
        const T* later = source + kUnpackAhead * static_cast<long>(run.weights.inputs);
        float* out = run.out + row * run.out_stride;
        int i = 0;
        for (; i + Vec::kWidth <= run.count; i += Vec::kWidth) {
            __builtin_prefetch(later + i, 0, 3);
            Vec::store(out + i, Vec::load(source + i));
        }
        if (i < run.count)
            Vec::store_part(out + i, Vec::load_part(source + i, run.count - i), run.count - i);
    }
}

// `first` and `count` are multiples of the group.
template <class Vec, class T>
void unpack_groups(const UnpackRun& run) {
    const WeightRows& w = run.weights;
    for (int row = 0; row < w.count; ++row) {
        const Byte* at = static_cast<const Byte*>(w.data) + row * w.row_bytes +
                         run.first / 32 * static_cast<long>(kRunBytes<T>);
        float* out = run.out + row * run.out_stride;
        long g = static_cast<long>(row) * w.groups + run.first / w.group;
        for (int i = 0; i < run.count; ++g) {
            const auto scale = Vec::broadcast(reinterpret_cast<const Half*>(w.scales) + g);
            const auto zero = Vec::broadcast(static_cast<float>(w.zeros[g]));
            for (const int end = i + w.group; i < end; i += 32, at += kRunBytes<T>) {
                __builtin_prefetch(at + kUnpackAhead * w.row_bytes, 0, 3);
                each_vector<Vec, 1>(
                    at, 0, static_cast<const T*>(nullptr), [&](int v, const auto* q) {
                        Vec::store(out + i + v, Vec::mul(Vec::sub(q[0], zero), scale));
                    });
            }
        }
    }
}

}  // namespace
}  // namespace tandem

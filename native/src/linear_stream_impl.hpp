// Products of a few rows of x with weights that go through registers once, over a vector type
// `Vec`. For sources per instruction set: nothing from the standard library's inline functions.
#pragma once

#include "linear_kernel.hpp"
#include "simd/element.hpp"

namespace tandem {
namespace {

constexpr int kLine = 64;      // bytes of a cache line
constexpr long kAhead = 1024;  // bytes; found by trying

struct Nibbles {};  // stands for the type of int4 weights

// Asks for what each of `kRows` consecutive weight rows needs `kAhead` bytes later, which may lie
// in the rows after them.
template <int kRows>
class RowPrefetcher {
  public:
    RowPrefetcher(const void* first, long row_bytes)
        : first_(static_cast<const char*>(first)), row_bytes_(row_bytes) {}

    void at(long byte) const {
        long ahead = byte + kAhead;
        if (ahead >= row_bytes_) ahead += (kRows - 1) * row_bytes_;
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row)
            __builtin_prefetch(first_ + row * row_bytes_ + ahead, 0, 3);
    }

  private:
    const char* first_;
    long row_bytes_;
};

template <class Vec, int kRows, int kColumns>
struct Sums {
    typename Vec::Reg of[kRows][kColumns];

    Sums() {
        for (auto& row : of)
            for (auto& sum : row) sum = Vec::zero();
    }

    void write(const StreamRun& run, int first) const {
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c)
                run.out[c * run.out_stride + first + row] = Vec::sum(of[row][c]);
    }
};

// kRows weights from `first` with all kColumns rows of x.
template <class Vec, class T, int kRows, int kColumns>
void stream_floats(const StreamRun& run, int first) {
    constexpr int kStep = kLine / sizeof(T);
    const int inputs = run.weights.inputs;
    const T* weights = static_cast<const T*>(run.weights.data) + static_cast<long>(first) * inputs;
    const RowPrefetcher<kRows> prefetcher(weights, run.weights.row_bytes);
    Sums<Vec, kRows, kColumns> sums;
    const auto accumulate = [&](const auto& load_x, const auto& load_weight,
                                int i) __attribute__((always_inline)) {
        typename Vec::Reg x[kColumns];
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) x[c] = load_x(run.x + c * run.x_stride + i);
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
            const auto w = load_weight(weights + static_cast<long>(row) * inputs + i);
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) sums.of[row][c] = Vec::fma(w, x[c], sums.of[row][c]);
        }
    };
    const auto whole_x = [](const float* p) { return Vec::load(p); };
    const auto whole_weight = [](const T* p) { return Vec::load(p); };
    int i = 0;
    for (; i + kStep <= inputs; i += kStep) {
        prefetcher.at(i * static_cast<long>(sizeof(T)));
#pragma GCC unroll 8
        for (int v = 0; v < kStep; v += Vec::kWidth) accumulate(whole_x, whole_weight, i + v);
    }
    for (; i + Vec::kWidth <= inputs; i += Vec::kWidth) accumulate(whole_x, whole_weight, i);
    if (i < inputs) {
        const int rest = inputs - i;
        accumulate([&](const float* p) { return Vec::load_part(p, rest); },
                   [&](const T* p) { return Vec::load_part(p, rest); }, i);
    }
    sums.write(run, first);
}

// Calls use(index, weights) for each vector of 32 consecutive weights, as unsigned whole numbers.
template <class Vec, class Use>
inline __attribute__((always_inline)) void each_vector(const Byte* at, const Byte*,
                                                       const Use& use) {
#pragma GCC unroll 8
    for (int i = 0; i < 32; i += Vec::kWidth) use(i, Vec::load(at + i));
}
template <class Vec, class Use>
inline __attribute__((always_inline)) void each_vector(const Byte* at, const Nibbles*,
                                                       const Use& use) {
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += Vec::kWidth) {
        typename Vec::Reg low, high;
        Vec::load_nibbles(at + i, low, high);
        use(i, low);
        use(i + 16, high);
    }
}

template <class T>
constexpr int kRunBytes = 32;  // of 32 weights
template <>
constexpr int kRunBytes<Nibbles> = 16;

// A group's sum is s (sum of q x - z sum of x): whole numbers are converted, but not scaled.
template <class Vec, class T, int kRows, int kColumns>
void stream_groups(const StreamRun& run, int first) {
    const WeightRows& w = run.weights;
    const Byte* weights = static_cast<const Byte*>(w.data) + first * w.row_bytes;
    const auto* scales =
        reinterpret_cast<const Half*>(w.scales) + static_cast<long>(first) * w.groups;
    const std::uint8_t* zeros = w.zeros + static_cast<long>(first) * w.groups;
    const RowPrefetcher<kRows> prefetcher(weights, w.row_bytes);
    Sums<Vec, kRows, kColumns> sums;
    long byte = 0;
    const float* x = run.x;
    for (int g = 0; g < w.groups; ++g) {
        Sums<Vec, kRows, kColumns> part;
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
            const auto zero = Vec::broadcast(static_cast<float>(zeros[row * w.groups + g]));
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c)
                part.of[row][c] = Vec::mul(zero, Vec::broadcast(run.sums[c * w.groups + g]));
        }
        for (int i = 0; i < w.group; i += 32, x += 32, byte += kRunBytes<T>) {
            prefetcher.at(byte);
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row) {
                const auto use = [&](int at, auto weight) __attribute__((always_inline)) {
#pragma GCC unroll 4
                    for (int c = 0; c < kColumns; ++c)
                        part.of[row][c] =
                            Vec::fma(weight, Vec::load(x + c * run.x_stride + at), part.of[row][c]);
                };
                each_vector<Vec>(weights + row * w.row_bytes + byte, static_cast<const T*>(nullptr),
                                 use);
            }
        }
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
            const auto scale = Vec::broadcast(scales + row * w.groups + g);
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c)
                sums.of[row][c] = Vec::fma(scale, part.of[row][c], sums.of[row][c]);
        }
    }
    sums.write(run, first);
}

template <class T>
constexpr bool kIsQuantized = false;
template <>
constexpr bool kIsQuantized<Byte> = true;
template <>
constexpr bool kIsQuantized<Nibbles> = true;

template <class Vec, class T, int kRows, int kColumns>
void stream_tile(const StreamRun& run, int first) {
    if constexpr (kIsQuantized<T>)
        stream_groups<Vec, T, kRows, kColumns>(run, first);
    else
        stream_floats<Vec, T, kRows, kColumns>(run, first);
}

template <class Vec, class T, int kRows, int kColumns>
void stream_all(const StreamRun& run) {
    int i = 0;
    for (; i + kRows <= run.weights.count; i += kRows) stream_tile<Vec, T, kRows, kColumns>(run, i);
    for (; i < run.weights.count; ++i) stream_tile<Vec, T, 1, kColumns>(run, i);
}

template <class Vec, class T>
void stream(const StreamRun& run) {
    switch (run.rows) {
        case 1:
            return stream_all<Vec, T, 4, 1>(run);
        case 2:
            return stream_all<Vec, T, 4, 2>(run);
        case 3:
            return stream_all<Vec, T, kIsQuantized<T> ? 2 : 4, 3>(run);
        default:
            return stream_all<Vec, T, kIsQuantized<T> ? 2 : 3, 4>(run);
    }
}

template <class Vec>
void sum_groups(const SumRun& run) {
    const float* x = run.x;
    for (int g = 0; g < run.groups; ++g, x += run.group) {
        auto sum = Vec::zero();
        for (int i = 0; i < run.group; i += Vec::kWidth) sum = Vec::add(sum, Vec::load(x + i));
        run.sums[g] = Vec::sum(sum) * (-1.0f / Vec::kWidth);
    }
}

}  // namespace
}  // namespace tandem

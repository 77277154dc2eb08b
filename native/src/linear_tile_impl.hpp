// What the products of a few rows of x share: tiles of sums, and asking for weights ahead, over a
// vector type `Vec`. For sources per instruction set: nothing from the standard library's inline
// functions.
#pragma once

#include "linear_kernel.hpp"
#include "simd/element.hpp"

namespace tandem {
namespace {

constexpr int kLine = 64;      // bytes of a cache line
constexpr long kAhead = 1024;  // bytes; found by trying

// Asks for what each of `kRows` consecutive weight rows needs `kAhead` bytes later in its block,
// which may lie in the rows after them.
template <int kRows>
class RowPrefetcher {
  public:
    RowPrefetcher(const void* first, long row_bytes, long block_bytes)
        : first_(static_cast<const char*>(first)),
          row_bytes_(row_bytes),
          block_bytes_(block_bytes) {}

    void at(long byte) const {
        long ahead = byte + kAhead;
        if (ahead >= block_bytes_) ahead += kRows * row_bytes_ - block_bytes_;
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row)
            __builtin_prefetch(first_ + row * row_bytes_ + ahead, 0, 3);
    }

  private:
    const char* first_;
    long row_bytes_;
    long block_bytes_;
};

// Where a tile's rows of weights and of x begin.
struct TileAt {
    int row;
    int column;
};

template <class Vec, int kRows, int kColumns>
struct Sums {
    typename Vec::Reg of[kRows][kColumns];

    Sums() {
        for (auto& row : of)
            for (auto& sum : row) sum = Vec::zero();
    }

    void write(const StreamRun& run, TileAt at) const {
        float* out = run.out + at.column * run.out_stride + at.row;
#pragma GCC unroll 6
        for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row) {
                float& sum = out[c * run.out_stride + row];
                sum = (run.adds ? sum : 0.0f) + Vec::sum(of[row][c]);
            }
    }
};

}  // namespace
}  // namespace tandem

// What the products of a few rows of x share: tiles of sums, and asking for weights ahead, over a
// vector type `Vec`. For sources per instruction set: nothing from the standard library's inline
// functions.
#pragma once

#include "linear_kernel.hpp"
#include "simd/element.hpp"

namespace tandem {
namespace {

constexpr int kLine = 64;  // bytes of a cache line

// Bytes; found by trying: several rows ahead of which so much is asked for push x out of the
// first-level cache.
template <int kRows>
constexpr long kAhead = kRows == 1 ? 4096 : 1024;

// Asks for what each of `kRows` consecutive weight rows needs `kAhead` bytes later in its block,
// which may lie in the rows after them.
template <int kRows>
class RowPrefetcher {
  public:
    RowPrefetcher(const void* first, long row_bytes, long block_bytes)
        : first_(static_cast<const char*>(first)),
          row_bytes_(row_bytes),
          block_bytes_(block_bytes),
          ahead_(block_bytes < kAhead<kRows> ? block_bytes : kAhead<kRows>) {}

    void at(long byte) const {
        long ahead = byte + ahead_;
        if (ahead >= block_bytes_) ahead += kRows * row_bytes_ - block_bytes_;
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row)
            __builtin_prefetch(first_ + row * row_bytes_ + ahead, 0, 3);
    }

  private:
    const char* first_;
    long row_bytes_;
    long block_bytes_;
    long ahead_;
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

    template <class Run>
    void write(const Run& run, TileAt at) const {
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

// A tile of kRows rows of weights with `columns` rows of x, at most kMost.
template <class Tile, int kRows, int kMost, class Run>
void tile_columns(const Run& run, TileAt at, int columns) {
    if (columns == kMost)
        Tile::template run<kRows, kMost>(run, at);
    else if constexpr (kMost > 1)
        tile_columns<Tile, kRows, kMost - 1>(run, at, columns);
}

// Tiles of kRows rows of weights and up to kMost of x; x is the inner loop, so that weights are
// still in the first-level cache when they are needed again.
template <class Tile, int kRows, int kMost, class Run>
void tile_all(const Run& run) {
    for (int row = 0, step; row < run.weights.count; row += step) {
        step = run.weights.count - row < kRows ? 1 : kRows;
        for (int column = 0; column < run.rows; column += kMost) {
            const int left = run.rows - column;
            const int columns = left < kMost ? left : kMost;
            if (step == kRows)
                tile_columns<Tile, kRows, kMost>(run, {row, column}, columns);
            else
                tile_columns<Tile, 1, kMost>(run, {row, column}, columns);
        }
    }
}

}  // namespace
}  // namespace tandem

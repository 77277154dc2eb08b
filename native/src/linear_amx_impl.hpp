// Products of many rows of x with blocks of weights by AMX's tiles of bfloat16, as accurate as in
// float32. For sources per instruction set: nothing from the standard library's inline functions.
//
// A float32 is exactly the sum of three bfloat16s, a float16 of two. So x is cut into three parts,
// and weights into as many as their type needs; tiles multiply parts and add up in float32. Of x's
// part i and a weight's part j those with i + j > 2 are left out: together at most 2^-24 of the
// product of the two, which is what rounding it to float32 may cost. Numbers below 2^-126 are 0 to
// tiles; numbers that are not finite, or round to none in bfloat16, give NaN.
//
// Weights lie as rows, which is how tiles want their first operand; x, the smaller, is turned into
// the second's pairs of inputs.
#pragma once

#include <immintrin.h>

#include "linear_kernel_impl.hpp"

namespace tandem {
namespace {

constexpr int kTileRows = 16;      // and sums in a tile's row
constexpr int kTileRowBytes = 64;  // of every row of every tile
constexpr int kTileInputs = 32;    // bfloat16s in a row
constexpr int kTileFloats = kTileRows * 16;
constexpr int kXParts = 3;
constexpr int kTileBlock = kMaxBlockInputs / 2;  // inputs: of three parts, what a row has room for
constexpr long kWeightRowBytes = kUnpackedStride * long{sizeof(float)};
static_assert(3 * kTileBlock * int{sizeof(BFloat)} <= kWeightRowBytes);
static_assert(kTileBlock % kTileInputs == 0);

// So many bfloat16s add up to any value of a type: float16 has 11 bits, int4 dequantized 15.
template <class T>
constexpr int kWeightParts = 3;
template <>
constexpr int kWeightParts<Half> = 2;
template <>
constexpr int kWeightParts<BFloat> = 1;
template <>
constexpr int kWeightParts<Nibbles> = 2;

constexpr int kPartsOf[] = {kWeightParts<float>, kWeightParts<Half>, kWeightParts<BFloat>,
                            kWeightParts<Byte>, kWeightParts<Nibbles>};  // by WeightType

constexpr int count_tiles(int inputs) { return (inputs + kTileInputs - 1) / kTileInputs; }

// The nearest bfloat16; `rest` is left with what it lacks.
inline std::uint16_t take_nearest(float& rest) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &rest, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    float part;
    __builtin_memcpy(&part, &bits, sizeof part);
    rest -= part;
    return static_cast<std::uint16_t>(bits >> 16);
}

// What is left, if a bfloat16 holds it; unlike rounding, this keeps every NaN.
inline std::uint16_t take_rest(float rest) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &rest, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
}

// A tile's row of floats in parts, each kStride elements after the one before.
template <int kParts, int kStride>
void cut(const float* floats, std::uint16_t* parts) {
    for (int i = 0; i < kTileInputs; ++i) {
        float rest = floats[i];
        for (int part = 0; part < kParts - 1; ++part)
            parts[part * kStride + i] = take_nearest(rest);
        parts[(kParts - 1) * kStride + i] = take_rest(rest);
    }
}

// Weight rows in parts of kTileBlock elements, filled up to whole tiles with zeros.
template <class Vec, class T>
void unpack_parts(const UnpackRun& run) {
    float floats[kTileBlock] = {};
    UnpackRun one = run;
    one.weights.count = 1;
    one.out = floats;
    for (int row = 0; row < run.weights.count; ++row) {
        if constexpr (kIsQuantized<T>) {
            unpack_groups<Vec, T>(one);
            one.weights.scales += run.weights.groups;
            one.weights.zeros += run.weights.groups;
        } else {
            unpack_floats<Vec, T>(one);
        }
        one.weights.data = static_cast<const char*>(one.weights.data) + run.weights.row_bytes;
        auto* parts = reinterpret_cast<std::uint16_t*>(run.out + row * run.out_stride);
        for (int i = 0; i < run.count; i += kTileInputs)
            cut<kWeightParts<T>, kTileBlock>(floats + i, parts + i);
    }
}

// A tile's rows of x, all parts: pairs of inputs side by side, and a word per row of x in each.
template <class Vec>
void pack_tile(const float* const (&x)[kTileRows], int count, float* out) {
    std::uint16_t parts[kTileRows][kXParts][kTileInputs];
    for (int row = 0; row < kTileRows; ++row) {
        float floats[kTileInputs] = {};
        __builtin_memcpy(floats, x[row], count * sizeof(float));
        cut<kXParts, kTileInputs>(floats, parts[row][0]);
    }
    for (int part = 0; part < kXParts; ++part, out += kTileFloats)
        for (int first = 0; first < kTileRows; first += Vec::kWidth) {
            const unsigned char* rows[Vec::kWidth];
            for (int row = 0; row < Vec::kWidth; ++row)
                rows[row] = reinterpret_cast<const unsigned char*>(parts[first + row][part]);
            for (int pair = 0; pair < kTileInputs / 2; pair += 4)
                turn_four<Vec>(rows, pair * 4, out + pair * kTileRows + first, kTileRows);
        }
}

// [tile of rows][tile of inputs][part]; the last row of x stands for those beyond it.
template <class Vec>
void pack_tiles(const PackRun& run) {
    float* out = run.out;
    for (int first = 0; first < run.rows; first += kTileRows)
        for (int done = 0; done < run.count; done += kTileInputs) {
            const float* x[kTileRows];
            for (int i = 0; i < kTileRows; ++i) {
                const int row = first + i < run.rows ? first + i : run.rows - 1;
                x[i] = run.x + row * run.x_stride + run.first + done;
            }
            const int left = run.count - done;
            pack_tile<Vec>(x, left < kTileInputs ? left : kTileInputs, out);
            out += kXParts * kTileFloats;
        }
}

// As `ldtilecfg` reads it: eight tiles of sixteen rows of 64 bytes. Not on the stack: compilers
// take that the instruction reads eight bytes.
struct TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);
alignas(64) constexpr TileShapes kTileShapes;

// Sums of kRows tiles of weights with kColumns of x: tiles 0 and 1, 2 and 3. Weights go through
// tiles 4 and 5, x through 6 and 7.
template <int kRows, int kColumns>
class TileSums {
  public:
    TileSums(const PanelRun& run, float* sums)
        : below_(sums + kTileRows * run.sums_stride),
          sums_(sums),
          stride_(run.sums_stride * long{sizeof(float)}) {
        if (run.adds)
            load();
        else
            clear();
    }

    // x: its first tile's first part; `x_step` floats to the second's. Small products come first:
    // the large ones are rounded once.
    void add(const char* weights, const float* x, long x_step, int parts) const {
        for (int part = parts - 1; part >= 0; --part) {
            const char* at = weights + part * kTileBlock * long{sizeof(BFloat)};
            _tile_loadd(4, at, kWeightRowBytes);
            if constexpr (kRows == 2)
                _tile_loadd(5, at + kTileRows * kWeightRowBytes, kWeightRowBytes);
            for (int of_x = kXParts - 1 - part; of_x >= 0; --of_x)
                multiply(x + of_x * kTileFloats, x_step);
        }
    }

    void store() const {
        _tile_stored(0, sums_, stride_);
        if constexpr (kColumns == 2) _tile_stored(1, sums_ + kTileRows, stride_);
        if constexpr (kRows == 2) _tile_stored(2, below_, stride_);
        if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, below_ + kTileRows, stride_);
    }

  private:
    void load() const {
        _tile_loadd(0, sums_, stride_);
        if constexpr (kColumns == 2) _tile_loadd(1, sums_ + kTileRows, stride_);
        if constexpr (kRows == 2) _tile_loadd(2, below_, stride_);
        if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, below_ + kTileRows, stride_);
    }

    void clear() const {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }

    void multiply(const float* x, long x_step) const {
        _tile_loadd(6, x, kTileRowBytes);
        if constexpr (kColumns == 2) _tile_loadd(7, x + x_step, kTileRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
        if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
        if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
    }

    float* below_;
    float* sums_;
    long stride_;  // bytes
};

template <int kRows, int kColumns>
void multiply_tiles(const PanelRun& run, int row, int column, BlockPrefetcher& prefetcher) {
    const int tiles = count_tiles(run.inputs);
    const long x_step = static_cast<long>(tiles) * kXParts * kTileFloats;
    const float* x = run.x + column / kTileRows * x_step;
    const char* weights = reinterpret_cast<const char*>(run.weights) + row * kWeightRowBytes;
    const TileSums<kRows, kColumns> sums(run, run.sums + row * run.sums_stride + column);
    for (int tile = 0; tile < tiles; ++tile, weights += kTileRowBytes, x += kXParts * kTileFloats) {
        prefetcher.advance();
        sums.add(weights, x, x_step, kPartsOf[int(run.type)]);
    }
    sums.store();
}

// Two tiles of weights and two of x at a time, so that each is loaded for two products.
inline void multiply_panels_by_tiles(const PanelRun& run) {
    const long pairs = (run.count / kTileRows + 1L) / 2 * ((run.padded_rows / kTileRows + 1) / 2);
    BlockPrefetcher prefetcher(run, pairs * count_tiles(run.inputs));
    // Of the thread, so begun and ended here: elsewhere the system need not save it.
    __asm__ volatile("" ::: "memory");  // compilers may not know that tiles are loaded from memory
    _tile_loadconfig(&kTileShapes);
    for (int column = 0; column < run.padded_rows; column += 2 * kTileRows) {
        const bool wide = run.padded_rows - column > kTileRows;
        for (int row = 0; row < run.count; row += 2 * kTileRows) {
            const bool high = run.count - row > kTileRows;
            if (high && wide)
                multiply_tiles<2, 2>(run, row, column, prefetcher);
            else if (high)
                multiply_tiles<2, 1>(run, row, column, prefetcher);
            else if (wide)
                multiply_tiles<1, 2>(run, row, column, prefetcher);
            else
                multiply_tiles<1, 1>(run, row, column, prefetcher);
        }
    }
    _tile_release();
}

// Panels by tiles, the rest over `Vec`.
template <class Vec>
constexpr LinearKernels make_tile_kernels() {
    static_assert(kTileRows % Vec::kWidth == 0);
    LinearKernels kernels = make_linear_kernels<Vec>();
    kernels.width = kTileRows;
    kernels.panel = {.weight_rows = kTileRows,
                     .inputs = kTileInputs,
                     .most_inputs = kTileBlock,
                     .x_bytes = kXParts * int{sizeof(BFloat)}};
    kernels.unpack_panel[int(WeightType::kFloat32)] = unpack_parts<Vec, float>;
    kernels.unpack_panel[int(WeightType::kFloat16)] = unpack_parts<Vec, Half>;
    kernels.unpack_panel[int(WeightType::kBFloat16)] = unpack_parts<Vec, BFloat>;
    kernels.unpack_panel[int(WeightType::kInt8)] = unpack_parts<Vec, Byte>;
    kernels.unpack_panel[int(WeightType::kInt4)] = unpack_parts<Vec, Nibbles>;
    kernels.pack = pack_tiles<Vec>;
    kernels.multiply = multiply_panels_by_tiles;
    return kernels;
}

}  // namespace
}  // namespace tandem

// Stands in front of the compiler's own header where AMX's tiles are emulated, for the kernels that
// use them: moves and products as Intel's manual gives them (Software Developer's Manual, volume 2,
// TILELOADD, TILESTORED and TDPBF16PS). Using a tile before its shape is loaded ends the process.
#pragma once

#include_next <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem_emulated {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tile {
    int rows = 0;
    int row_bytes = 0;
    unsigned char data[kRows][kRowBytes] = {};
};

// Of a thread, as in a processor.
struct Tiles {
    bool configured = false;
    Tile of[kTiles];
};

inline Tiles& tiles() {
    thread_local Tiles state;
    return state;
}

inline void demand(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "emulated tiles: %s\n", what);
    std::abort();
}

inline Tile& tile(int number) {
    demand(tiles().configured, "no shapes are loaded");
    demand(number >= 0 && number < kTiles, "there are eight tiles");
    return tiles().of[number];
}

inline void load_config(const void* memory) {
    unsigned char bytes[64];
    std::memcpy(bytes, memory, sizeof bytes);
    demand(bytes[0] == 1 && bytes[1] == 0, "palette 1 from row 0 is what is expected");
    for (int i = 2; i < 16; ++i) demand(bytes[i] == 0, "reserved bytes must be 0");
    for (int i = 0; i < 16; ++i) {
        std::uint16_t row_bytes;
        std::memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof row_bytes);
        const int rows = bytes[48 + i];
        demand(i < kTiles ? rows <= kRows && row_bytes <= kRowBytes : !rows && !row_bytes,
               "a shape that palette 1 has not");
        demand((rows == 0) == (row_bytes == 0), "a shape with one side alone");
        if (i >= kTiles) continue;
        tiles().of[i] = Tile{};
        tiles().of[i].rows = rows;
        tiles().of[i].row_bytes = row_bytes;
    }
    tiles().configured = true;
}

inline void release() { tiles() = Tiles{}; }

inline void zero(int number) { std::memset(tile(number).data, 0, sizeof tile(number).data); }

inline void load(int number, const void* base, long stride) {
    Tile& to = tile(number);
    std::memset(to.data, 0, sizeof to.data);
    for (int row = 0; row < to.rows; ++row)
        std::memcpy(to.data[row], static_cast<const char*>(base) + row * stride, to.row_bytes);
}

inline void store(int number, void* base, long stride) {
    const Tile& from = tile(number);
    for (int row = 0; row < from.rows; ++row)
        std::memcpy(static_cast<char*>(base) + row * stride, from.data[row], from.row_bytes);
}

// Subnormal numbers are 0, before and after every operation.
inline float flushed(float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

inline float from_pair(const unsigned char* pair, int which) {
    std::uint16_t bits;
    std::memcpy(&bits, pair + 2 * which, sizeof bits);
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return flushed(value);
}

// Even and odd inputs are added up apart, with multiply-adds, then with each other, then to the
// sum.
inline void multiply_pairs(int sums, int first, int second) {
    Tile &c = tile(sums), &a = tile(first), &b = tile(second);
    demand(sums != first && sums != second && first != second, "three tiles must differ");
    demand(c.rows == a.rows && c.row_bytes == b.row_bytes && a.row_bytes == 4 * b.rows,
           "shapes do not fit");
    for (int m = 0; m < c.rows; ++m)
        for (int n = 0; n < c.row_bytes / 4; ++n) {
            float even = 0.0f, odd = 0.0f;
            for (int k = 0; k < b.rows; ++k) {
                const unsigned char *left = a.data[m] + 4 * k, *right = b.data[k] + 4 * n;
                even = flushed(std::fma(from_pair(left, 0), from_pair(right, 0), even));
                odd = flushed(std::fma(from_pair(left, 1), from_pair(right, 1), odd));
            }
            float sum;
            std::memcpy(&sum, c.data[m] + 4 * n, sizeof sum);
            sum = flushed(flushed(sum) + flushed(even + odd));
            std::memcpy(c.data[m] + 4 * n, &sum, sizeof sum);
        }
}

}  // namespace tandem_emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig tandem_emulated::load_config
#define _tile_release tandem_emulated::release
#define _tile_zero tandem_emulated::zero
#define _tile_loadd tandem_emulated::load
#define _tile_stored tandem_emulated::store
#define _tile_dpbf16ps tandem_emulated::multiply_pairs

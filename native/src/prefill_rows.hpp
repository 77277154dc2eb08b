// Keys and values of a page as rows of float32, for prefill.
#pragma once

#include "prefill_kernel.hpp"
#include "simd/element.hpp"

namespace tandem {
namespace {

enum Part { kKeys = 0, kValues = 1 };

// Converts `count` keys or values of one head, from `key` of the sequence on, all in one block.
//
// Only these functions know how pages hold their elements: one per type of pages.
template <class Vec, class T>
void load_rows(T, const PrefillRun& run, Part part, int key, int count, float* target) {
    const long block = run.blocks[key / run.block_size];
    const long head = (block * 2 + part) * run.kv_heads + run.kv_head;
    const int stride = prefill_stride(run.head_dim), dim = run.head_dim;
    const T* row = static_cast<const T*>(run.pages) +
                   (head * run.block_size + key % run.block_size) * static_cast<long>(dim);
    for (int i = 0; i < count; ++i, row += dim, target += stride) {
        int column = 0;
        for (; column + Vec::kWidth <= dim; column += Vec::kWidth)
            Vec::store(target + column, Vec::load(row + column));
        if (column < dim) Vec::store(target + column, Vec::load_part(row + column, dim - column));
    }
}

// Names pages of kBits codes (quantized_page.hpp).
template <int kBits>
struct Codes {};

// One group's codes, times `scale`, plus `minimum`.
template <class Vec, int kBits>
inline __attribute__((always_inline)) void load_group(const Byte* codes, int size,
                                                      typename Vec::Reg scale,
                                                      typename Vec::Reg minimum, float* target) {
    if constexpr (kBits == 8) {
        for (int i = 0; i < size; i += Vec::kWidth)
            Vec::store(target + i, Vec::fma(scale, Vec::load(codes + i), minimum));
        return;
    }
    for (int run = 0; run < size; run += kCodeRun)
        for (int i = 0; i < kCodeRun / 2; i += Vec::kWidth) {
            typename Vec::Reg low, high;
            Vec::load_nibbles(codes + run / 2 + i, low, high);
            Vec::store(target + run + i, Vec::fma(scale, low, minimum));
            Vec::store(target + run + kCodeRun / 2 + i, Vec::fma(scale, high, minimum));
        }
}

template <class Vec, int kBits>
void load_rows(Codes<kBits>, const PrefillRun& run, Part part, int key, int count, float* target) {
    const int dim = run.codes.row_elements;  // at most prefill_stride
    const int size = run.codes.group_size, groups = dim / size;
    const auto* page = static_cast<const Byte*>(run.pages) +
                       run.blocks[key / run.block_size] * run.codes.page_bytes;
    const long head = static_cast<long>(part) * run.kv_heads + run.kv_head;
    const long row = head * run.block_size + key % run.block_size;
    const Byte* codes = page + row * (dim * kBits / 8);
    const auto* pairs = reinterpret_cast<const Half*>(page + run.codes.pairs_offset) +
                        head * groups * 2 * run.block_size + key % run.block_size;
    for (int i = 0; i < count; ++i, target += prefill_stride(run.head_dim), ++pairs)
        for (int group = 0; group < groups; ++group, codes += size * kBits / 8)
            load_group<Vec, kBits>(codes, size, Vec::broadcast(pairs + 2L * group * run.block_size),
                                   Vec::broadcast(pairs + (2L * group + 1) * run.block_size),
                                   target + group * size);
}

}  // namespace
}  // namespace tandem

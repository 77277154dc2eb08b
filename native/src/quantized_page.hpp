// The layout of a page of quantized keys and values, the same bytes as in
// `tandem.memory.quantized_page`.
//
// [K|V][kv_head][token][element] codes, then [K|V][kv_head][group][2][token] float16: scales and
// minima, each as a row over tokens. An element is code * scale + minimum. Rows are head_dim
// rounded up to runs of 32 elements; what is beyond head_dim repeats the last element, and means
// nothing. In each run, byte i of a 4-bit page holds element i in its low and element 16 + i in its
// high half.
#pragma once

#include <cstdint>

#include "code_format.hpp"

namespace tandem {

struct QuantizedPage {
    int bits;  // 8 or 4
    int kv_heads;
    int block_size;
    int head_dim;

    constexpr int row_elements() const { return (head_dim + kCodeRun - 1) / kCodeRun * kCodeRun; }
    constexpr int group_size() const { return row_elements() % 64 == 0 ? 64 : kCodeRun; }
    constexpr int groups() const { return row_elements() / group_size(); }
    constexpr std::int64_t row_bytes() const { return std::int64_t{row_elements()} * bits / 8; }
    // Bytes of a token's scales and minima in one head.
    constexpr std::int64_t pair_bytes() const { return std::int64_t{groups()} * 2 * 2; }
    constexpr std::int64_t rows() const { return std::int64_t{2} * kv_heads * block_size; }
    // Where a token's codes begin, and its first scale is; `head` counts the K heads, then the V
    // heads. Its other scales and minima follow at steps of block_size * 2 bytes.
    constexpr std::int64_t code_offset(std::int64_t head, std::int64_t token) const {
        return (head * block_size + token) * row_bytes();
    }
    constexpr std::int64_t pair_offset(std::int64_t head, std::int64_t token) const {
        return rows() * row_bytes() + head * block_size * pair_bytes() + token * 2;
    }
    constexpr std::int64_t page_bytes() const { return rows() * (row_bytes() + pair_bytes()); }
    constexpr CodeLayout layout() const {
        return {row_elements(), group_size(), page_bytes(), pair_offset(0, 0)};
    }

    // Throws std::invalid_argument unless bits and head size are ones that there are kernels for.
    void check() const;
};

}  // namespace tandem

// Elements of quantized pages, read one by one as quantized_page.hpp describes them.
#pragma once

#include <cstring>

#include "convert.hpp"
#include "quantized_page.hpp"

inline float read_half(const char* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return tandem::from_half(bits);
}

// An element of one page; `head` counts the K heads, then the V heads.
inline float read_element(const tandem::QuantizedPage& layout, const char* page, int head,
                          int token, int element) {
    const std::int64_t row = std::int64_t{head} * layout.block_size + token;
    int byte = element;
    if (layout.bits == 4) byte = element / 32 * 16 + element % 16;
    const auto both = static_cast<unsigned char>(page[row * layout.row_bytes() + byte]);
    const int code = layout.bits == 8 ? both : element % 32 < 16 ? both & 15 : both >> 4;
    const std::int64_t codes =
        2 * std::int64_t{layout.kv_heads} * layout.block_size * layout.row_bytes();
    const std::int64_t pair =
        (std::int64_t{head} * layout.groups() + element / layout.group_size()) * 2;
    const char* scale = page + codes + (pair * layout.block_size + token) * 2;
    return static_cast<float>(code) * read_half(scale) + read_half(scale + layout.block_size * 2);
}

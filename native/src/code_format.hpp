// What kernels know of quantized pages (quantized_page.hpp).
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int kCodeRun = 32;      // rows and groups are multiples of it; packed at a time
inline constexpr int kMaxCodeDim = 512;  // of a head

struct CodeLayout {
    int row_elements;  // of a token's head: head_dim rounded up to whole runs
    int group_size;    // elements that share a scale and a minimum
    std::int64_t page_bytes;
    std::int64_t pairs_offset;  // of the first scale in a page
};

}  // namespace tandem

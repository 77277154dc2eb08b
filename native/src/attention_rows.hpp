// Which keys each query token of one tier's rows sees, read from the arrays of a step and checked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Shape of one layer's pages and of the queries that attend to them.
struct AttentionShape {
    int heads;
    int kv_heads;
    int block_size;
    int head_dim;
    int code_bits = 0;  // of quantized pages (quantized_page.hpp); 0: pages of floats

    int group() const { return heads / kv_heads; }
    std::int64_t page_elements() const {
        return std::int64_t{2} * kv_heads * block_size * head_dim;
    }
};

// The arrays of `tandem.plan.binding.TierAttention`.
struct AttentionArrays {
    std::span<const std::int32_t> query_start;  // [rows + 1]
    std::span<const std::int32_t> positions;    // [tokens]
    std::span<const std::int32_t> block_table;  // [rows, max_blocks]
    std::span<const std::int32_t> block_index;  // [rows, max_blocks]; empty: entry j is block j
    std::span<const std::int64_t> token_index;  // [tokens]; empty: token i is query i
    bool selects_tokens;                        // token_index is given
    std::int32_t window;  // keys that a token sees, itself included; 0: all before it
};

inline constexpr int kMaxHeadDim = 512;

struct AttentionRows {
    // Throws std::invalid_argument if the arrays contradict each other or the shape.
    AttentionRows(const AttentionShape& shape, const AttentionArrays& arrays);

    struct Row {
        std::int32_t first_token;
        std::int32_t num_tokens;
        std::int32_t first_key;  // that its first token sees
        std::int32_t num_keys;   // up to the last one that its last token sees
        std::size_t blocks;      // where its physical block ids begin in `blocks`
    };

    AttentionShape shape;
    std::int32_t num_tokens = 0;
    std::int64_t num_queries_needed = 0;  // rows of the query array: highest token index + 1
    std::int32_t max_block = -1;          // highest physical block id that is read
    std::int32_t max_row_tokens = 0;
    std::int64_t total_keys = 0;  // of all rows
    std::vector<Row> rows;
    std::vector<std::int32_t> first_seen;  // [num_tokens]; first key that each token sees
    std::vector<std::int32_t> visible;     // [num_tokens]; end of the keys that each token sees
    std::vector<std::int64_t> tokens;      // [num_tokens]; row of the query array of each token
    std::vector<std::int32_t> blocks;

  private:
    void read_tokens(const AttentionArrays& arrays);
    void read_row(const AttentionArrays& arrays, std::size_t row, std::size_t max_blocks);
};

}  // namespace tandem

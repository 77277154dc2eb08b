#include "attention_rows.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "divide.hpp"
#include "quantized_page.hpp"
#include "require.hpp"

namespace tandem {
namespace {

void check_shape(const AttentionShape& s) {
    require(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0,
            "heads (" + std::to_string(s.heads) + ") must be a positive multiple of kv_heads (" +
                std::to_string(s.kv_heads) + ")");
    require(s.head_dim > 0 && s.head_dim % 4 == 0 && s.head_dim <= kMaxHeadDim,
            "head_dim must be a multiple of 4 up to " + std::to_string(kMaxHeadDim) + ", not " +
                std::to_string(s.head_dim));
    require(s.block_size >= 1 && s.block_size <= 4096, "block_size must be 1 to 4096");
    if (s.code_bits != 0) QuantizedPage{s.code_bits, s.kv_heads, s.block_size, s.head_dim}.check();
}

// Keys of a tier at positions up to one that grows from call to call.
class KeyCounter {
  public:
    // `index` is the row's line of block_index; empty: block j is the j-th of the sequence.
    KeyCounter(std::span<const std::int32_t> index, std::int64_t num_blocks, std::int64_t size,
               const std::string& name)
        : index_(index), num_blocks_(num_blocks), size_(size), name_(name) {}

    std::int32_t count(std::int64_t position) {
        while (block_ < num_blocks_ && first_key(block_) + size_ <= position + 1) advance();
        std::int64_t keys = block_ * size_;
        if (block_ < num_blocks_ && first_key(block_) <= position) {
            check(block_);
            if (block_ + 1 < num_blocks_ && first_key(block_ + 1) <= position) check(block_ + 1);
            keys += position + 1 - first_key(block_);
        }
        require(keys <= std::numeric_limits<std::int32_t>::max(), name_ + "too many keys");
        return static_cast<std::int32_t>(keys);
    }

  private:
    std::int64_t first_key(std::int64_t j) const {
        return (index_.empty() ? j : std::int64_t{index_[j]}) * size_;
    }
    void check(std::int64_t j) const {
        require(first_key(j) >= 0 && (j == 0 || first_key(j) > first_key(j - 1)),
                name_ + "block_index must ascend from 0 or more");
    }
    void advance() { check(block_++); }

    std::span<const std::int32_t> index_;
    std::int64_t num_blocks_;
    std::int64_t size_;
    const std::string& name_;
    std::int64_t block_ = 0;  // those before it lie wholly at or before the last position
};

}  // namespace

AttentionRows::AttentionRows(const AttentionShape& given, const AttentionArrays& arrays)
    : shape(given) {
    check_shape(shape);
    require(arrays.window >= 0, "window must be positive, or 0 for none");
    require(!arrays.query_start.empty(), "query_start must hold rows + 1 entries");
    require(arrays.positions.size() < std::numeric_limits<std::int32_t>::max(), "too many tokens");
    const std::size_t num_rows = arrays.query_start.size() - 1;
    const std::size_t max_blocks = num_rows ? arrays.block_table.size() / num_rows : 0;
    require(arrays.block_table.size() == num_rows * max_blocks,
            "block_table must have one line per row of query_start");
    require(arrays.block_index.empty() || arrays.block_index.size() == arrays.block_table.size(),
            "block_index must have the shape of block_table");
    read_tokens(arrays);
    rows.reserve(num_rows);
    first_seen.resize(num_tokens);
    visible.resize(num_tokens);
    for (std::size_t row = 0; row < num_rows; ++row) read_row(arrays, row, max_blocks);
}

void AttentionRows::read_tokens(const AttentionArrays& arrays) {
    num_tokens = static_cast<std::int32_t>(arrays.positions.size());
    require(arrays.query_start.front() == 0 && arrays.query_start.back() == num_tokens,
            "query_start must run from 0 to the number of positions");
    require(!arrays.selects_tokens || arrays.token_index.size() == arrays.positions.size(),
            "token_index must have one entry per position");
    tokens.resize(num_tokens);
    for (std::int32_t i = 0; i < num_tokens; ++i) {
        tokens[i] = arrays.selects_tokens ? arrays.token_index[i] : i;
        require(tokens[i] >= 0, "token_index must not be negative");
        num_queries_needed = std::max(num_queries_needed, tokens[i] + 1);
    }
}

void AttentionRows::read_row(const AttentionArrays& arrays, std::size_t row,
                             std::size_t max_blocks) {
    const std::int32_t first = arrays.query_start[row], last = arrays.query_start[row + 1];
    const std::string name = "row " + std::to_string(row) + ": ";
    // Bounded by the number of positions: read_tokens checked the last entry only.
    require(first >= 0 && first <= last && last <= num_tokens, name + "query_start must not fall");
    const std::size_t line = row * max_blocks;
    const std::int64_t size = shape.block_size;
    const auto index = arrays.block_index.empty() ? arrays.block_index
                                                  : arrays.block_index.subspan(line, max_blocks);
    KeyCounter seen(index, static_cast<std::int64_t>(max_blocks), size, name);
    KeyCounter passed = seen;  // keys before the window
    Row result{first, last - first, 0, 0, blocks.size()};
    for (std::int32_t t = first; t < last; ++t) {
        const std::int64_t position = arrays.positions[t];
        require(position >= 0, name + "a position is negative");
        require(t == first || position >= arrays.positions[t - 1], name + "positions must ascend");
        visible[t] = result.num_keys = seen.count(position);
        require(!arrays.block_index.empty() || result.num_keys == position + 1,
                name + "position " + std::to_string(position) + " lies beyond its block table");
        first_seen[t] = arrays.window ? passed.count(position - arrays.window) : 0;
    }
    if (first < last) result.first_key = first_seen[first];
    for (std::int64_t j = 0; j < divide_up(result.num_keys, size); ++j) {
        // Blocks before the window are not read: they may be gone.
        const bool read = (j + 1) * size > result.first_key;
        const std::int32_t block = read ? arrays.block_table[line + j] : 0;
        require(block >= 0, name + "block_table holds the negative block " + std::to_string(block));
        if (read) max_block = std::max(max_block, block);
        blocks.push_back(block);
    }
    max_row_tokens = std::max(max_row_tokens, result.num_tokens);
    total_keys += result.num_keys - result.first_key;
    rows.push_back(result);
}

}  // namespace tandem

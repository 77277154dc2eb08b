#include "attention_plan.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace tandem {
namespace {

constexpr int kPartsPerThread = 8;                  // taken as threads become free
constexpr std::int64_t kMinPartElements = 1 << 15;  // of keys and values

void require(bool condition, const std::string& message) {
    if (!condition) throw std::invalid_argument(message);
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t count_units(const AttentionPlan::Row& row) {
    if (row.num_tokens == 0) return 0;
    return std::max<std::int64_t>(1, divide_up(row.num_keys - row.first_key, kCutKeys));
}

void check_shape(const AttentionShape& s) {
    require(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0,
            "heads (" + std::to_string(s.heads) + ") must be a positive multiple of kv_heads (" +
                std::to_string(s.kv_heads) + ")");
    require(s.head_dim > 0 && s.head_dim % 4 == 0 && s.head_dim <= kMaxHeadDim,
            "head_dim must be a multiple of 4 up to " + std::to_string(kMaxHeadDim) + ", not " +
                std::to_string(s.head_dim));
    require(s.block_size >= 1 && s.block_size <= 4096, "block_size must be 1 to 4096");
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionShape& given, const AttentionArrays& arrays,
                             int num_threads)
    : shape(given) {
    check_shape(shape);
    require(num_threads > 0, "num_threads must be positive");
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
    cut(num_threads);
}

void AttentionPlan::read_tokens(const AttentionArrays& arrays) {
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

void AttentionPlan::read_row(const AttentionArrays& arrays, std::size_t row,
                             std::size_t max_blocks) {
    const std::int32_t first = arrays.query_start[row], last = arrays.query_start[row + 1];
    const std::string name = "row " + std::to_string(row) + ": ";
    // Bounded by the number of positions: read_tokens checked the last entry only.
    require(first >= 0 && first <= last && last <= num_tokens, name + "query_start must not fall");
    require(last - first <= kMaxQueryTokens, name + std::to_string(last - first) +
                                                 " query tokens; decode attention takes at most " +
                                                 std::to_string(kMaxQueryTokens));
    const std::size_t line = row * max_blocks;
    const std::int64_t size = shape.block_size;
    const auto first_key = [&](std::size_t j) {
        return (arrays.block_index.empty() ? std::int64_t(j) : arrays.block_index[line + j]) * size;
    };
    // Keys of this tier at positions up to `position`.
    const auto count_keys = [&](std::int64_t position) {
        std::int64_t keys = 0;
        for (std::size_t j = 0; j < max_blocks && first_key(j) <= position; ++j) {
            require(first_key(j) >= 0 && (j == 0 || first_key(j) > first_key(j - 1)),
                    name + "block_index must ascend from 0 or more");
            keys += std::min(size, position + 1 - first_key(j));
        }
        require(keys <= std::numeric_limits<std::int32_t>::max(), name + "too many keys");
        return static_cast<std::int32_t>(keys);
    };
    Row result{first, last - first, 0, 0, blocks.size()};
    for (std::int32_t t = first; t < last; ++t) {
        const std::int64_t position = arrays.positions[t];
        require(position >= 0, name + "a position is negative");
        require(t == first || position >= arrays.positions[t - 1], name + "positions must ascend");
        visible[t] = result.num_keys = count_keys(position);
        require(!arrays.block_index.empty() || result.num_keys == position + 1,
                name + "position " + std::to_string(position) + " lies beyond its block table");
        first_seen[t] = arrays.window ? count_keys(position - arrays.window) : 0;
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

void AttentionPlan::cut(int num_threads) {
    const std::int64_t key_elements = std::int64_t{2} * shape.head_dim * shape.kv_heads;
    std::int64_t units = 0;  // of kCutKeys keys; a row without keys has one, too
    for (const Row& row : rows) units += count_units(row);
    const std::int64_t worthwhile = units * kCutKeys * key_elements / kMinPartElements;
    const std::int64_t most = std::min(units, std::int64_t{num_threads} * kPartsPerThread);
    const std::int64_t parts = std::max<std::int64_t>(1, std::min(worthwhile, most));
    part_start.push_back(0);
    std::int64_t done = 0;
    std::int64_t part_end = units / parts;
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(rows.size()); ++r) {
        const std::int64_t first = rows[r].first_key, last = rows[r].num_keys;
        const std::int64_t row_units = count_units(rows[r]);
        for (std::int64_t unit = 0; unit < row_units;) {
            const std::int64_t take = std::min(row_units - unit, part_end - done);
            const std::int64_t begin = first + unit * kCutKeys;
            const std::int64_t end = std::min(last, begin + take * kCutKeys);
            add_segment({r, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end), -1},
                        rows[r]);
            unit += take;
            done += take;
            if (done == part_end && done < units) {
                part_start.push_back(static_cast<std::int32_t>(segments.size()));
                part_end = units * static_cast<std::int64_t>(part_start.size()) / parts;
            }
        }
    }
    part_start.push_back(static_cast<std::int32_t>(segments.size()));
}

void AttentionPlan::add_segment(Segment segment, const Row& row) {
    if (segment.begin != row.first_key || segment.end != row.num_keys) {
        segment.partial = num_partials++;
        if (segment.begin == row.first_key)
            merges.push_back({segment.row, segment.partial, 1});
        else
            ++merges.back().count;
    }
    segments.push_back(segment);
}

}  // namespace tandem

#include "attention_plan.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "divide.hpp"
#include "require.hpp"

namespace tandem {
namespace {

constexpr int kPartsPerThread = 8;                  // taken as threads become free
constexpr std::int64_t kMinPartElements = 1 << 15;  // of keys and values
constexpr int kMergePartsPerThread = 2;
constexpr std::int64_t kMinMergeElements = 1 << 15;  // of partial sums

std::int64_t count_units(const AttentionPlan::Row& row) {
    if (row.num_tokens == 0) return 0;
    return std::max<std::int64_t>(1, divide_up(row.num_keys - row.first_key, kCutKeys));
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionShape& given, const AttentionArrays& arrays,
                             int num_threads)
    : AttentionRows(given, arrays) {
    require(num_threads > 0, "num_threads must be positive");
    for (std::size_t r = 0; r < rows.size(); ++r)
        require(rows[r].num_tokens <= kMaxQueryTokens,
                "row " + std::to_string(r) + ": " + std::to_string(rows[r].num_tokens) +
                    " query tokens; decode attention takes at most " +
                    std::to_string(kMaxQueryTokens));
    cut(num_threads);
    cut_merges(num_threads);
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

// A unit is a query of a row, of all heads', and weighs as much as it has partials.
void AttentionPlan::cut_merges(int num_threads) {
    const auto queries = [&](const Merge& merge) {
        return rows[merge.row].num_tokens * shape.heads;
    };
    std::int64_t total = 0;
    for (const Merge& merge : merges) total += std::int64_t{merge.count} * queries(merge);
    merge_start.push_back(0);
    const std::int64_t most = std::int64_t{num_threads} * kMergePartsPerThread;
    EvenCut even(total,
                 std::clamp<std::int64_t>(total * shape.head_dim / kMinMergeElements, 1, most));
    for (std::int32_t m = 0; m < static_cast<std::int32_t>(merges.size()); ++m) {
        std::int32_t begin = 0;
        for (std::int32_t query = 0; query < queries(merges[m]); ++query) {
            const bool part_ends = even.ends_after(merges[m].count);
            if (!part_ends && query + 1 < queries(merges[m])) continue;
            merge_runs.push_back({m, begin, query + 1});
            begin = query + 1;
            if (part_ends) merge_start.push_back(static_cast<std::int32_t>(merge_runs.size()));
        }
    }
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

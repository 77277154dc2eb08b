// What one tier's decode attention reads and how it is divided; built once per step, used by every
// layer.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_rows.hpp"

namespace tandem {

inline constexpr int kMaxQueryTokens = 8;  // per row; longer runs are prefill
inline constexpr int kCutKeys = 16;        // rows are cut at multiples of this

// Keys begin..end-1 of a row, for all KV heads: a page is read from its beginning to its end.
// `partial` is where an unfinished result goes, or -1 if the segment is all of the row's keys.
struct Segment {
    std::int32_t row;
    std::int32_t begin;
    std::int32_t end;
    std::int32_t partial;
};

// Partials first..first+count-1 are of one row.
struct Merge {
    std::int32_t row;
    std::int32_t first;
    std::int32_t count;
};

// Queries begin..end-1 of a merge's row, in the order of `AttentionRun`.
struct MergeRun {
    std::int32_t merge;
    std::int32_t begin;
    std::int32_t end;
};

class AttentionPlan : public AttentionRows {
  public:
    // Cuts the work into runs of equal bytes, the same for the same arguments.
    //
    // Throws std::invalid_argument if the arrays contradict each other or the shape, or a row has
    // more than kMaxQueryTokens.
    AttentionPlan(const AttentionShape& shape, const AttentionArrays& arrays, int num_threads);

    std::vector<Segment> segments;
    std::vector<std::int32_t> part_start;  // [parts + 1]; segments of each part
    std::vector<Merge> merges;
    std::vector<MergeRun> merge_runs;
    std::vector<std::int32_t> merge_start;  // [merging parts + 1]; merge runs of each part
    std::int32_t num_partials = 0;

    // Parts that attend come first, then those that merge what they left.
    int num_attending_parts() const { return static_cast<int>(part_start.size()) - 1; }
    int num_merging_parts() const { return static_cast<int>(merge_start.size()) - 1; }
    int num_parts() const { return num_attending_parts() + num_merging_parts(); }

  private:
    void cut(int num_threads);
    void cut_merges(int num_threads);
    void add_segment(Segment segment, const Row& row);
};

}  // namespace tandem

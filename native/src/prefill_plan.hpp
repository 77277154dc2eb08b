// How one tier's prefill attention is divided; built once per step, used by every layer.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_rows.hpp"

namespace tandem {

// Consecutive query tokens of a row, with the heads that share one KV head.
struct QueryTile {
    std::int32_t row;
    std::int32_t kv_head;
    std::int32_t first_token;  // of the batch
    std::int32_t num_tokens;
    std::int32_t begin;  // keys that any of them sees
    std::int32_t end;
};

// A tile over keys begin..end-1. `partial` is where an unfinished result goes, or -1 if these are
// all of the tile's keys.
struct KeyRun {
    std::int32_t tile;
    std::int32_t begin;
    std::int32_t end;
    std::int32_t partial;
};

// Partials first..first+count-1 are of one tile.
struct TileMerge {
    std::int32_t tile;
    std::int32_t first;
    std::int32_t count;
};

inline constexpr int kTileQueries = 192;  // at most, if one token's heads are not more
inline constexpr int kRunKeys = 512;      // tiles are cut at multiples of this; of kPrefillKeys

class PrefillPlan : public AttentionRows {
  public:
    // Cuts the work into runs that take about equally long, the same for the same arguments: what
    // counts is how many keys each query sees.
    //
    // Throws std::invalid_argument if the arrays contradict each other or the shape.
    PrefillPlan(const AttentionShape& shape, const AttentionArrays& arrays, int num_threads);

    std::vector<QueryTile> tiles;
    std::vector<KeyRun> runs;
    std::vector<std::int32_t> part_start;  // [parts + 1]; runs of each part
    std::vector<TileMerge> merges;
    std::vector<std::int32_t> merge_start;  // [merging parts + 1]; merges of each part
    std::int32_t num_partials = 0;
    std::int32_t max_tile_tokens = 0;

    // Parts that attend come first, then those that merge what they left.
    int num_attending_parts() const { return static_cast<int>(part_start.size()) - 1; }
    int num_merging_parts() const { return static_cast<int>(merge_start.size()) - 1; }
    int num_parts() const { return num_attending_parts() + num_merging_parts(); }

  private:
    void add_tiles();
    std::int64_t work(const QueryTile& tile) const;
    void cut(int num_threads);
    void cut_merges();
    void add_run(KeyRun run);
};

}  // namespace tandem

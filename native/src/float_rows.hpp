// Pages of floats: a key or value is a row of T.
#pragma once

#include "add_values.hpp"
#include "score_keys.hpp"

namespace tandem {
namespace {

constexpr int kTileBytes = 8192;

// Rows of a tile: multiples of 16 that fit the first-level cache beside queries and sums.
int tile_keys(int row_bytes) {
    const int fitting = kTileBytes / row_bytes / 16 * 16;
    return fitting < 16 ? 16 : fitting > kMaxTile ? kMaxTile : fitting;
}

template <class Vec, class T>
class FloatRows {
  public:
    using Vector = Vec;
    using Place = const T*;

    explicit FloatRows(const AttentionRun& run)
        : run_(run),
          head_elements_(static_cast<long>(run.block_size) * run.head_dim),
          row_bytes_(static_cast<int>(sizeof(T)) * run.head_dim) {}

    Place keys(int key, int head) const {
        const long page = run_.blocks[key / run_.block_size] * 2L * run_.kv_heads;
        return static_cast<const T*>(run_.pages) + (page + head) * head_elements_ +
               static_cast<long>(key % run_.block_size) * run_.head_dim;
    }
    Place values(int key, int head) const { return keys(key, run_.kv_heads + head); }
    Place next() const { return static_cast<const T*>(run_.next); }

    // Scores of one head's `count` keys; `next` will be read afterwards.
    void score(Place keys, int count, const AttentionRun& run, Place next) const {
        const int passes = count_score_passes<Vec>(run.num_queries);
        each_tile(keys, count, run, passes, next, &score_queries<Vec, T>);
    }

    // Adds one head's weighted values; `next` will be read afterwards.
    void add(Place values, int count, const AttentionRun& run, Place next) const {
        const int passes = count_add_passes<Vec>(run.num_queries, run.head_dim);
        const auto add_tile = [](Place here, int tile, const AttentionRun& part,
                                 Prefetcher& prefetcher) {
            add_queries<Vec, T>(here, tile, part, prefetcher);
            for (int i = 0; i < part.num_queries; ++i) part.correction[i] = 1.0f;
        };
        each_tile(values, count, run, passes, next, add_tile);
    }

    void finish() const {}

  private:
    template <class Work>
    void each_tile(Place rows, int count, const AttentionRun& run, int passes, Place next,
                   Work work) const {
        const int most = tile_keys(row_bytes_);
        for (int done = 0; done < count; done += most) {
            const Place here = rows + static_cast<long>(done) * run.head_dim;
            const bool last = done + most >= count;
            const int tile = last ? count - done : most;
            const Place then = last ? next : here + static_cast<long>(most) * run.head_dim;
            Prefetcher prefetcher(then, static_cast<long>(most) * row_bytes_, tile * passes);
            AttentionRun part = run;
            part.scores += done;
            work(here, tile, part, prefetcher);
        }
    }

    const AttentionRun& run_;
    long head_elements_;
    int row_bytes_;
};

}  // namespace
}  // namespace tandem

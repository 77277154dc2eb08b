// Attention of a few queries over paged keys, written once over a vector type `Vec`.
//
// Included by one source per instruction set. Nothing here may come from the standard library's
// inline functions: the linker keeps one copy of those for all instruction sets.
//
// A page's keys are read for all KV heads, then its values: memory delivers long runs half as fast
// again as runs of one head. Within a head, work goes through tiles that stay in the first-level
// cache; while a tile is worked on, the next is prefetched.
#pragma once

#include "attention_kernel.hpp"
#include "simd/element.hpp"
#include "vector_math.hpp"

namespace tandem {
namespace {

constexpr int kTileBytes = 8192;
constexpr int kCacheLine = 64;
constexpr int kUnrolledKeys = 4;
constexpr float kMinusInfinity = -__builtin_inff();

// Asks for memory in the order in which it lies, evenly over a number of steps: asked for at once,
// it would wait for the processor's few buffers, and ask for nothing later.
class Prefetcher {
  public:
    Prefetcher(const void* begin, long bytes, long steps)
        : at_(static_cast<const char*>(begin)),
          due_(at_),
          end_(at_ + (begin ? bytes : 0)),
          step_bytes_(bytes / steps + 1) {}

    void advance(int steps) {
        due_ += steps * step_bytes_;
        const char* stop = due_ < end_ ? due_ : end_;
        for (; at_ < stop; at_ += kCacheLine) __builtin_prefetch(at_, 0, 3);
    }

  private:
    const char* at_;
    const char* due_;
    const char* end_;
    long step_bytes_;
};

// Scores of kQueries queries with 4 * kLanes / kQueries keys, stored as [query][key].
//
// The last of a tile's keys are repeated where the tile has fewer (kClamp): callers overwrite them.
template <class Vec, class T, int kQueries, bool kClamp>
inline __attribute__((always_inline)) void score_keys(const T* keys, int last, const float* queries,
                                                      const AttentionRun& run, float* scores) {
    constexpr int kLanesPerQuery = Vec::kLanes / kQueries;
    constexpr int kKeys = 4 * kLanesPerQuery;
    const int dim = run.head_dim;
    typename Vec::Reg sums[4 * Vec::kLanes];
    for (auto& sum : sums) sum = Vec::zero();
    const auto row = [&](int key) -> const T* {
        return keys + static_cast<long>(kClamp && key > last ? last : key) * dim;
    };
    const auto accumulate = [&](const auto& load, int column) __attribute__((always_inline)) {
        typename Vec::Reg query[kQueries];
        for (int i = 0; i < kQueries; ++i)
            query[i] = Vec::load(queries + static_cast<long>(i) * run.padded_dim + column);
#pragma GCC unroll 16
        for (int key = 0; key < kKeys; ++key) {
            const auto values = load(row(key) + column);
#pragma GCC unroll 4
            for (int i = 0; i < kQueries; ++i) {
                auto& sum = sums[key % 4 * Vec::kLanes + i * kLanesPerQuery + key / 4];
                sum = Vec::fma(values, query[i], sum);
            }
        }
    };
    int column = 0;
    for (; column + Vec::kWidth <= dim; column += Vec::kWidth)
        accumulate([](const T* p) { return Vec::load(p); }, column);
    if (column < dim)
        accumulate([&](const T* p) { return Vec::load_part(p, dim - column); }, column);
    const auto total = Vec::sum_rows(sums);
#pragma GCC unroll 4
    for (int lane = 0; lane < Vec::kLanes; ++lane) {
        float* target = scores + lane / kLanesPerQuery * kMaxTile + lane % kLanesPerQuery * 4;
        Vec::store_lane(target, total, lane);
    }
}

template <class Vec, class T, int kQueries>
void score_tile(const T* keys, int count, int first_query, const AttentionRun& run,
                Prefetcher& prefetcher) {
    constexpr int kKeys = 4 * Vec::kLanes / kQueries;
    const float* queries = run.queries + static_cast<long>(first_query) * run.padded_dim;
    float* scores = run.scores + static_cast<long>(first_query) * kMaxTile;
    int key = 0;
    for (; key + kKeys <= count; key += kKeys) {
        prefetcher.advance(kKeys);
        score_keys<Vec, T, kQueries, false>(keys + static_cast<long>(key) * run.head_dim, 0,
                                            queries, run, scores + key);
    }
    if (key < count) {
        prefetcher.advance(kKeys);
        score_keys<Vec, T, kQueries, true>(keys + static_cast<long>(key) * run.head_dim,
                                           count - key - 1, queries, run, scores + key);
    }
}

int bound(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

// Turns a query's scores into weights and notes by how much earlier sums shrink.
template <class Vec>
void weigh_tile(int query, int first_key, int count, const AttentionRun& run) {
    float* scores = run.scores + static_cast<long>(query) * kMaxTile;
    const int padded = (count + Vec::kWidth - 1) / Vec::kWidth * Vec::kWidth;
    if (run.soft_cap > 0)
        for (int i = 0; i < padded; i += Vec::kWidth)
            Vec::store(scores + i, cap_softly<Vec>(Vec::load(scores + i), run.soft_cap));
    const int unseen = bound(run.first_seen[query] - first_key, count);
    for (int i = 0; i < unseen; ++i) scores[i] = kMinusInfinity;
    for (int i = bound(run.visible[query] - first_key, count); i < padded; ++i)
        scores[i] = kMinusInfinity;
    auto highest = Vec::broadcast(run.max[query]);
    for (int i = 0; i < padded; i += Vec::kWidth)
        highest = Vec::max(highest, Vec::load(scores + i));
    const float max = Vec::max_of(highest);
    if (max == kMinusInfinity) {  // no key seen yet
        for (int i = 0; i < padded; ++i) scores[i] = 0.0f;
        run.correction[query] = 1.0f;
        return;
    }
    const auto base = Vec::broadcast(max);
    auto sum = Vec::zero();
    for (int i = 0; i < padded; i += Vec::kWidth) {
        const auto weight = exp2<Vec>(Vec::sub(Vec::load(scores + i), base));
        Vec::store(scores + i, weight);
        sum = Vec::add(sum, weight);
    }
    float shrink[Vec::kWidth];
    Vec::store(shrink, exp2<Vec>(Vec::broadcast(run.max[query] - max)));
    run.correction[query] = shrink[0];
    run.weight[query] = run.weight[query] * shrink[0] + Vec::sum(sum);
    run.max[query] = max;
}

// Adds the weighted values' columns from `column` on, kColumns vectors of kQueries queries.
template <class Vec, class T, int kQueries, int kColumns, bool kPart>
inline __attribute__((always_inline)) void add_columns(const T* values, int count, int first_query,
                                                       int column, const AttentionRun& run,
                                                       Prefetcher& prefetcher) {
    const float* weights = run.scores + static_cast<long>(first_query) * kMaxTile;
    float* target = run.sums + static_cast<long>(first_query) * run.padded_dim + column;
    typename Vec::Reg sums[kQueries][kColumns];
    for (int i = 0; i < kQueries; ++i) {
        const auto correction = Vec::broadcast(run.correction[first_query + i]);
        for (int c = 0; c < kColumns; ++c)
            sums[i][c] = Vec::mul(
                correction,
                Vec::load(target + static_cast<long>(i) * run.padded_dim + c * Vec::kWidth));
    }
    const T* row = values + column;
    const auto add = [&](int key) __attribute__((always_inline)) {
        typename Vec::Reg value[kColumns];
        for (int c = 0; c < kColumns; ++c)
            value[c] = kPart ? Vec::load_part(row, run.head_dim - column)
                             : Vec::load(row + c * Vec::kWidth);
#pragma GCC unroll 4
        for (int i = 0; i < kQueries; ++i) {
            const auto weight = Vec::broadcast(weights[static_cast<long>(i) * kMaxTile + key]);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; ++c) sums[i][c] = Vec::fma(weight, value[c], sums[i][c]);
        }
        row += run.head_dim;
    };
    int key = 0;
    for (; key + kUnrolledKeys <= count; key += kUnrolledKeys) {
        prefetcher.advance(kUnrolledKeys);
#pragma GCC unroll 4
        for (int i = 0; i < kUnrolledKeys; ++i) add(key + i);
    }
    prefetcher.advance(count - key);
    for (; key < count; ++key) add(key);
    for (int i = 0; i < kQueries; ++i)
        for (int c = 0; c < kColumns; ++c)
            Vec::store(target + static_cast<long>(i) * run.padded_dim + c * Vec::kWidth,
                       sums[i][c]);
}

// Vectors per query that `add_tile` sums at a time.
template <class Vec, int kQueries>
constexpr int kSumColumns = Vec::kColumns * (4 / kQueries > 2 ? 2 : 4 / kQueries);

template <class Vec, int kQueries>
int count_column_passes(int head_dim) {
    constexpr int kStep = kSumColumns<Vec, kQueries> * Vec::kWidth;
    return head_dim / kStep + (head_dim % kStep + Vec::kWidth - 1) / Vec::kWidth;
}

template <class Vec, class T, int kQueries>
void add_tile(const T* values, int count, int first_query, const AttentionRun& run,
              Prefetcher& prefetcher) {
    constexpr int kColumns = kSumColumns<Vec, kQueries>;
    constexpr int kStep = kColumns * Vec::kWidth;
    int column = 0;
    for (; column + kStep <= run.head_dim; column += kStep)
        add_columns<Vec, T, kQueries, kColumns, false>(values, count, first_query, column, run,
                                                       prefetcher);
    for (; column + Vec::kWidth <= run.head_dim; column += Vec::kWidth)
        add_columns<Vec, T, kQueries, 1, false>(values, count, first_query, column, run,
                                                prefetcher);
    if (column < run.head_dim)
        add_columns<Vec, T, kQueries, 1, true>(values, count, first_query, column, run, prefetcher);
}

template <class Vec, class T>
void score_queries(const T* keys, int count, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    if constexpr (Vec::kLanes >= 4)
        for (; query + 4 <= run.num_queries; query += 4)
            score_tile<Vec, T, 4>(keys, count, query, run, prefetcher);
    if constexpr (Vec::kLanes >= 2)
        for (; query + 2 <= run.num_queries; query += 2)
            score_tile<Vec, T, 2>(keys, count, query, run, prefetcher);
    for (; query < run.num_queries; ++query)
        score_tile<Vec, T, 1>(keys, count, query, run, prefetcher);
}

template <class Vec, class T>
void add_queries(const T* values, int count, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    for (; query + 4 <= run.num_queries; query += 4)
        add_tile<Vec, T, 4>(values, count, query, run, prefetcher);
    for (; query + 2 <= run.num_queries; query += 2)
        add_tile<Vec, T, 2>(values, count, query, run, prefetcher);
    for (; query < run.num_queries; ++query)
        add_tile<Vec, T, 1>(values, count, query, run, prefetcher);
}

// How often the two functions above go through a tile.
template <class Vec>
int count_score_passes(int queries) {
    if constexpr (Vec::kLanes == 1) return queries;
    if constexpr (Vec::kLanes == 2) return queries / 2 + queries % 2;
    return queries / 4 + queries % 4 / 2 + queries % 2;
}

template <class Vec>
int count_add_passes(int queries, int head_dim) {
    return queries / 4 * count_column_passes<Vec, 4>(head_dim) +
           queries % 4 / 2 * count_column_passes<Vec, 2>(head_dim) +
           queries % 2 * count_column_passes<Vec, 1>(head_dim);
}

int tile_keys(int row_bytes) {
    const int fitting = kTileBytes / row_bytes / 16 * 16;
    return fitting < 16 ? 16 : fitting > kMaxTile ? kMaxTile : fitting;
}

// The same run for one KV head alone.
AttentionRun of_head(const AttentionRun& run, int head) {
    AttentionRun own = run;
    const long first = static_cast<long>(head) * run.num_queries;
    own.queries += first * run.padded_dim;
    own.scores += first * kMaxTile;
    own.correction += first;
    own.sums += first * run.padded_dim;
    own.max += first;
    own.weight += first;
    return own;
}

// Scores and weights of one head's `count` keys; `next` will be read afterwards.
template <class Vec, class T>
void score_head(const T* keys, int first_key, int count, const AttentionRun& run,
                const void* next) {
    const int row_bytes = static_cast<int>(sizeof(T)) * run.head_dim;
    const int most = tile_keys(row_bytes);
    const int passes = count_score_passes<Vec>(run.num_queries);
    for (int done = 0; done < count; done += most) {
        const T* here = keys + static_cast<long>(done) * run.head_dim;
        const bool last = done + most >= count;
        const int tile = last ? count - done : most;
        const void* then = last ? next : here + static_cast<long>(most) * run.head_dim;
        Prefetcher prefetcher(then, static_cast<long>(most) * row_bytes, tile * passes);
        AttentionRun part = run;
        part.scores += done;
        score_queries<Vec, T>(here, tile, part, prefetcher);
    }
    for (int i = 0; i < run.num_queries; ++i) weigh_tile<Vec>(i, first_key, count, run);
}

// Adds one head's weighted values; `next` will be read afterwards.
template <class Vec, class T>
void add_head(const T* values, int count, const AttentionRun& run, const void* next) {
    const int row_bytes = static_cast<int>(sizeof(T)) * run.head_dim;
    const int most = tile_keys(row_bytes);
    const int passes = count_add_passes<Vec>(run.num_queries, run.head_dim);
    for (int done = 0; done < count; done += most) {
        const T* here = values + static_cast<long>(done) * run.head_dim;
        const bool last = done + most >= count;
        const int tile = last ? count - done : most;
        const void* then = last ? next : here + static_cast<long>(most) * run.head_dim;
        Prefetcher prefetcher(then, static_cast<long>(most) * row_bytes, tile * passes);
        AttentionRun part = run;
        part.scores += done;
        add_queries<Vec, T>(here, tile, part, prefetcher);
        for (int i = 0; i < run.num_queries; ++i) run.correction[i] = 1.0f;
    }
}

void clear(const AttentionRun& run) {
    const long queries = static_cast<long>(run.kv_heads) * run.num_queries;
    for (long i = 0; i < queries; ++i) run.max[i] = kMinusInfinity;
    for (long i = 0; i < queries; ++i) run.weight[i] = 0.0f;
    for (long i = 0; i < queries * run.padded_dim; ++i) run.sums[i] = 0.0f;
}

template <class Vec, class T>
void attend_run(const AttentionRun& run) {
    clear(run);
    const long head_elements = static_cast<long>(run.block_size) * run.head_dim;
    const long half_page = run.kv_heads * head_elements;  // keys; as much of values follows
    const auto find = [&](int key) {
        return static_cast<const T*>(run.pages) + run.blocks[key / run.block_size] * 2 * half_page +
               static_cast<long>(key % run.block_size) * run.head_dim;
    };
    for (int key = run.begin; key < run.end;) {
        const T* keys = find(key);
        const T* values = keys + half_page;
        const int left = run.block_size - key % run.block_size;
        int count = left < kMaxTile ? left : kMaxTile;
        if (count > run.end - key) count = run.end - key;
        const int following = key + count;
        for (int head = 0; head < run.kv_heads; ++head) {
            const T* next = head + 1 < run.kv_heads ? keys + (head + 1) * head_elements : values;
            score_head<Vec, T>(keys + head * head_elements, key, count, of_head(run, head), next);
        }
        const void* after = following < run.end ? find(following) : run.next;
        for (int head = 0; head < run.kv_heads; ++head) {
            const bool last = head + 1 == run.kv_heads;
            const void* next = last ? after : values + (head + 1) * head_elements;
            add_head<Vec, T>(values + head * head_elements, count, of_head(run, head), next);
        }
        key = following;
    }
}

template <class Vec>
constexpr AttentionKernels make_kernels() {
    return {attend_run<Vec, float>, attend_run<Vec, Half>, attend_run<Vec, BFloat>};
}

}  // namespace
}  // namespace tandem

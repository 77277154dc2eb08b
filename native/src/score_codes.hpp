// Products of queries and quantized keys.
//
// A step takes a few vectors of keys, a key per lane: their codes are transposed word by word, so
// that a word's field is one element of all keys, to be multiplied by one number of a query. No sum
// goes across lanes, and codes are converted once for up to four queries.
#pragma once

#include "attention_kernel.hpp"
#include "code_fields.hpp"
#include "prefetcher.hpp"

namespace tandem {
namespace {

// Vectors of keys in a step of kQueries queries: enough sums to hide an addition's latency.
template <int kQueries>
constexpr int kKeyVectors = kQueries == 4 ? 2 : 4;

// A group's words, as [word][vector]; keys beyond the last repeat it.
template <class Vec, int kVectors, int kWords>
void transpose_words(const CodeGroup& keys, typename Vec::Ints* target) {
    for (int vector = 0; vector < kVectors; ++vector) {
        const unsigned char* rows[Vec::kWidth];
        for (int i = 0; i < Vec::kWidth; ++i) {
            const int key = vector * Vec::kWidth + i;
            rows[i] = keys.codes +
                      static_cast<long>(key < keys.count ? key : keys.count - 1) * keys.row_bytes;
        }
        for (int word = 0; word < kWords; word += 4) {
            typename Vec::Ints columns[4];
            Vec::load_columns(rows, word * 4, columns);
            for (int i = 0; i < 4; ++i) target[(word + i) * kVectors + vector] = columns[i];
        }
    }
}

// Adds a group's part to the scores of kQueries queries with a step's keys from `scores` on.
template <class Fields, int kQueries>
void score_step(const CodeGroup& keys, int first_query, const AttentionRun& run, float* scores) {
    using Vec = typename Fields::Vec;
    constexpr int kVectors = kKeyVectors<kQueries>;
    constexpr int kWords = Fields::kGroup / Fields::kFields;
    typename Vec::Ints lanes[kWords * kVectors];
    transpose_words<Vec, kVectors, kWords>(keys, lanes);
    const float* query = run.queries + static_cast<long>(first_query) * run.padded_dim +
                         keys.index * Fields::kGroup * kQueries;
    typename Vec::Reg sums[kQueries][kVectors];
    for (int i = 0; i < kQueries; ++i)
        for (int v = 0; v < kVectors; ++v) sums[i][v] = Vec::zero();
    for (int word = 0; word < kWords; ++word, query += Fields::kFields * kQueries)
        for_each_field<Fields::kFields>([&]<int kField>() __attribute__((always_inline)) {
            typename Vec::Reg value[kVectors];
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v)
                value[v] = Fields::template value<kField>(lanes[word * kVectors + v]);
#pragma GCC unroll 4
            for (int i = 0; i < kQueries; ++i) {
                const auto factor = Vec::broadcast(query[kField * kQueries + i]);
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v)
                    sums[i][v] = Vec::fma(value[v], factor, sums[i][v]);
            }
        });
    const int groups = run.codes.row_elements / Fields::kGroup;
    const float* totals = run.query_sums + static_cast<long>(first_query) * groups + keys.index;
    for (int v = 0; v < kVectors; ++v) {
        const int at = v * Vec::kWidth;
        const auto scale = load_tokens<Vec>(keys.scales + at, keys.count - at);
        const auto minimum = load_tokens<Vec>(keys.minima + at, keys.count - at);
        for (int i = 0; i < kQueries; ++i) {
            float* target = scores + static_cast<long>(i) * kMaxTile + at;
            auto score = keys.index ? Vec::load(target) : Vec::zero();
            score = Vec::fma(minimum, Vec::broadcast(totals[i * groups]), score);
            Vec::store(target, Vec::fma(scale, sums[i][v], score));
        }
    }
}

template <class Fields, int kQueries>
void score_group(const CodeGroup& keys, int first_query, const AttentionRun& run,
                 Prefetcher& prefetcher) {
    constexpr int kKeys = kKeyVectors<kQueries> * Fields::Vec::kWidth;
    float* scores = run.scores + static_cast<long>(first_query) * kMaxTile;
    for (int key = 0; key < keys.count; key += kKeys) {
        prefetcher.advance(kKeys);
        score_step<Fields, kQueries>(keys.from(key), first_query, run, scores + key);
    }
}

template <class Fields>
void score_codes(const CodeGroup& keys, const AttentionRun& run, Prefetcher& prefetcher) {
    int query = 0;
    for (; query + 4 <= run.num_queries; query += 4)
        score_group<Fields, 4>(keys, query, run, prefetcher);
    for (; query + 2 <= run.num_queries; query += 2)
        score_group<Fields, 2>(keys, query, run, prefetcher);
    for (; query < run.num_queries; ++query) score_group<Fields, 1>(keys, query, run, prefetcher);
}

// How often `score_codes` goes through a group.
inline int count_query_passes(int queries) { return queries / 4 + queries % 4 / 2 + queries % 2; }

// Puts a head's queries into the order in which `score_codes` uses them: [element][query] of those
// that are taken together, elements in the order of words and fields, as much smaller as fields
// come out larger.
template <class Fields>
void reorder_queries(const AttentionRun& run) {
    const int elements = run.codes.row_elements;
    float ordered[4 * kMaxCodeDim];
    for (int first = 0, together; first < run.num_queries; first += together) {
        const int left = run.num_queries - first;
        together = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        float* queries = run.queries + static_cast<long>(first) * run.padded_dim;
        for (int at = 0; at < elements; ++at) {
            const int element = element_at<Fields::kBits>(at * Fields::kBits);
            const float shrink = 1.0f / Fields::grown(at % Fields::kFields);
            for (int i = 0; i < together; ++i)
                ordered[at * together + i] = queries[i * run.padded_dim + element] * shrink;
        }
        for (int i = 0; i < elements * together; ++i) queries[i] = ordered[i];
    }
}

}  // namespace
}  // namespace tandem

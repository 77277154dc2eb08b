// Pages of quantized keys and values (quantized_page.hpp), dequantized in registers.
//
// With x = code * scale + minimum in each group of a head's elements,
//   query . key = sum over groups of scale * (query . codes) + minimum * (sum of the query), and
//   sum of weight * value = sum of (weight * scale) * codes + sum of weight * minimum,
// so that the inner loops convert codes to floats, multiply and add, and do nothing else.
//
// Codes are taken as 32-bit lanes of a vector whose fields are masked, not shifted: field j comes
// out 2^(kBits * j) times too large, but for a lane's topmost bits, which would be its sign and are
// shifted. Queries are put into the order of words and fields, and made smaller by as much; sums
// are collected in the order of loads, fields and lanes, and put back at the end of a run.
#pragma once

#include "add_codes.hpp"
#include "attention_kernel.hpp"
#include "code_fields.hpp"
#include "head_run.hpp"
#include "score_codes.hpp"

namespace tandem {
namespace {

template <class Vec, int kBits, int kLaneBytes, int kGroup>
class CodeRows {
  public:
    using Vector = Vec;
    using Place = CodePlace;
    using KeyFields = CodeFields<Vec, kBits, 4, kGroup>;
    using ValueFields = CodeFields<Vec, kBits, kLaneBytes, kGroup>;

    explicit CodeRows(const AttentionRun& run)
        : run_(run),
          row_bytes_(run.codes.row_elements * kBits / 8),
          groups_(run.codes.row_elements / kGroup) {
        for (int i = 0; i < run.kv_heads * run.num_queries; ++i) sum_query(i);
        for (int head = 0; head < run.kv_heads; ++head)
            reorder_queries<KeyFields>(of_head(run, head));
    }

    Place keys(int key, int head) const {
        const auto* page = static_cast<const unsigned char*>(run_.pages) +
                           run_.blocks[key / run_.block_size] * run_.codes.page_bytes;
        const auto* pairs = reinterpret_cast<const Half*>(page + run_.codes.pairs_offset);
        const long first = static_cast<long>(head) * run_.block_size;
        const int token = key % run_.block_size;
        return {page + (first + token) * row_bytes_, pairs + first * groups_ * 2 + token};
    }
    Place values(int key, int head) const { return keys(key, run_.kv_heads + head); }
    Place next() const {
        return {static_cast<const unsigned char*>(run_.next),
                static_cast<const Half*>(run_.next_pairs)};
    }

    // Scores of one head's `count` keys; `next` will be read afterwards.
    void score(Place keys, int count, const AttentionRun& run, Place next) const {
        Prefetcher prefetcher = prefetch(next, count, count_query_passes(run.num_queries));
        for (int group = 0; group < groups_; ++group)
            score_codes<KeyFields>(group_of(keys, count, group), run, prefetcher);
    }

    // Adds one head's weighted values; `next` will be read afterwards.
    void add(Place values, int count, const AttentionRun& run, Place next) const {
        Prefetcher prefetcher =
            prefetch(next, count, count_value_passes<ValueFields>(run.num_queries));
        for (int group = 0; group < groups_; ++group)
            add_codes<ValueFields>(group_of(values, count, group), run, prefetcher);
    }

    // Puts the sums into their elements' order.
    void finish() const {
        for (int i = 0; i < run_.kv_heads * run_.num_queries; ++i)
            reorder_sums<ValueFields>(run_.codes.row_elements,
                                      run_.sums + static_cast<long>(i) * run_.padded_dim);
    }

  private:
    // Scales and minima at once, codes while `passes` go through each group's rows.
    Prefetcher prefetch(Place next, int count, int passes) const {
        Prefetcher(next.pairs, groups_ * 2L * run_.block_size * sizeof(Half), 1).advance(1);
        return {next.codes, static_cast<long>(count) * row_bytes_, count * groups_ * passes};
    }

    CodeGroup group_of(Place place, int count, int group) const {
        const Half* scales = place.pairs + 2L * group * run_.block_size;
        return {place.codes + group * kGroup * kBits / 8,
                row_bytes_,
                count,
                group,
                scales,
                scales + run_.block_size};
    }

    void sum_query(int index) const {
        const float* query = run_.queries + static_cast<long>(index) * run_.padded_dim;
        for (int group = 0; group < groups_; ++group) {
            float sum = 0.0f;
            for (int i = 0; i < kGroup; ++i) sum += query[group * kGroup + i];
            run_.query_sums[static_cast<long>(index) * groups_ + group] = sum;
        }
    }

    const AttentionRun& run_;
    int row_bytes_;
    int groups_;
};

}  // namespace
}  // namespace tandem

// One KV head's part of a run.
#pragma once

#include "attention_kernel.hpp"

namespace tandem {
namespace {

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
    if (run.query_sums) own.query_sums += first * (run.codes.row_elements / run.codes.group_size);
    return own;
}

}  // namespace
}  // namespace tandem

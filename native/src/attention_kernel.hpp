// The interface between the attention core and the kernels compiled per instruction set.
#pragma once

#include <cstdint>

#include "code_format.hpp"

namespace tandem {

inline constexpr int kMaxTile = 256;   // keys whose scores are held at a time
inline constexpr int kPadDim = 16;     // queries and sums are padded to whole vectors of any width
inline constexpr int kAlignment = 64;  // bytes; of every scratch buffer

// Queries of one sequence over a run of the sequence's keys, for all KV heads.
//
// "All queries" are those of the first KV head, of the second and so on: kv_heads * num_queries.
// Scores are in base 2: the queries carry the scale times log2(e).
struct AttentionRun {
    const void* pages;           // one layer's
    const std::int32_t* blocks;  // physical ids of the sequence's blocks
    int kv_heads;
    int block_size;
    int head_dim;
    int padded_dim;                  // head_dim rounded up to kPadDim, or to a quantized row
    int num_queries;                 // of a KV head: query tokens times heads of the group
    float* queries;                  // [all queries, padded_dim], padding 0; kernels reorder them
    const std::int32_t* first_seen;  // [num_queries]; each sees the sequence's keys from this one
    const std::int32_t* visible;     // [num_queries]; up to, and without, this one
    float soft_cap;                  // of base-2 scores: cap * tanh(score / cap); 0: none
    int begin;                       // keys begin..end-1 of the sequence
    int end;
    const void* next;        // what will be read after this run, to be prefetched; may be null
    const void* next_pairs;  // beside `next`, in quantized pages
    CodeLayout codes;        // of quantized pages
    float* query_sums;       // [all queries, groups] of quantized pages, scratch
    float* scores;           // [all queries, kMaxTile], scratch
    float* correction;       // [all queries], scratch
    // Results: sum of 2^(score - max) * value, maximum (-inf: no key seen), sum of 2^(score - max).
    float* sums;    // [all queries, padded_dim]
    float* max;     // [all queries]
    float* weight;  // [all queries]
};

using AttendRun = void (*)(const AttentionRun&);

// The sum of a query's partial sums, each with a factor.
struct StateSum {
    const float* sums;     // of the first; the others follow at steps of `stride` floats
    std::int64_t stride;   // a multiple of kPadDim
    const float* factors;  // [count]
    int count;
    float* out;    // [head_dim]
    int head_dim;  // sums are padded to a multiple of kPadDim
};

// The kernel of each key and value type.
struct AttentionKernels {
    AttendRun float32;
    AttendRun float16;
    AttendRun bfloat16;
    AttendRun float8;
    AttendRun codes8, codes4;        // groups of 64
    AttendRun codes8_32, codes4_32;  // groups of 32
    void (*add_states)(const StateSum&);
};

extern const AttentionKernels kPortableAttention;
#if defined(__x86_64__)
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;
#elif defined(__aarch64__)
extern const AttentionKernels kNeonAttention;
#endif

}  // namespace tandem

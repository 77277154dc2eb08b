// The interface between prefill attention and its kernels, compiled per instruction set.
#pragma once

#include <cstdint>

#include "code_format.hpp"

namespace tandem {

inline constexpr int kPrefillKeys = 64;  // keys and values that are held as float32 at a time
inline constexpr int kPrefillRows = 4;   // keys, or columns of values, of one step of a product

// Queries lie in panels of as many as fit a few vectors, one query per lane, so that everything
// about a query happens in its lane. A panel is [head_dim, lanes].
//
// Floats from one key or value held as float32 to the next: whole vectors of any width, and no
// power of two, or the same column of all rows would compete for a few places of the cache.
constexpr int prefill_stride(int head_dim) { return (head_dim + 15) / 16 * 16 + 16; }

// Keys that the queries of one panel see.
struct PanelBounds {
    std::int32_t begin;      // the first key that any of them sees
    std::int32_t all_begin;  // from here on ...
    std::int32_t all_end;    // ... to here they all see all of them
    std::int32_t end;        // the end of what any of them sees
};

// Queries of one KV head over a run of a sequence's keys.
struct PrefillRun {
    const void* pages;           // one layer's
    const std::int32_t* blocks;  // physical ids of the sequence's blocks
    int kv_heads;
    int kv_head;
    int block_size;
    int head_dim;      // a multiple of 4
    CodeLayout codes;  // of quantized pages
    int num_panels;
    const float* queries;            // [panels, head_dim, lanes]; scaled for base 2; unused lanes 0
    const PanelBounds* bounds;       // [panels]
    const std::int32_t* first_seen;  // [panels, lanes]; each sees the sequence's keys from this one
    const std::int32_t* visible;     // [panels, lanes]; up to, and without, this one
    float soft_cap;                  // of base-2 scores: cap * tanh(score / cap); 0: none
    int begin;                       // keys begin..end-1 of the sequence; either all that are left,
    int end;                         // or a multiple of kPrefillKeys
    float* keys;                     // [kPrefillKeys, prefill_stride], scratch
    float* values;                   // likewise
    float* scores;                   // [kPrefillKeys, lanes], scratch
    // Results: sum of 2^(score - max) * value, maximum (-inf: no key seen), sum of 2^(score - max).
    float* sums;    // [panels, head_dim, lanes]
    float* max;     // [panels, lanes]
    float* weight;  // [panels, lanes]
};

// One panel's queries or results and where they lie in the model's order.
struct PanelRows {
    int lanes;  // in use; the others are filled with 0
    int head_dim;
    const std::int64_t* rows;  // [lanes]; where each query's head_dim elements begin
};

using AttendPrefill = void (*)(const PrefillRun&);
// Fills a panel with scaled rows of `queries`; `scratch` holds 4 * prefill_stride floats.
using PackPanel = void (*)(const PanelRows&, const void* queries, float scale, float* scratch,
                           float* panel);
// Writes a panel, lane i times factors[i], to rows of `out`.
using UnpackPanel = void (*)(const PanelRows&, const float* panel, const float* factors,
                             float* out);

// One per element type of queries, or of keys and values.
struct PrefillKernels {
    int lanes;
    AttendPrefill attend_float32, attend_float16, attend_bfloat16, attend_float8;
    AttendPrefill attend_int8, attend_int4;
    PackPanel pack_float32, pack_float16, pack_bfloat16;
    UnpackPanel unpack;
};

extern const PrefillKernels kPortablePrefill;
#if defined(__x86_64__)
extern const PrefillKernels kAvx2Prefill;
extern const PrefillKernels kAvx512Prefill;
#elif defined(__aarch64__)
extern const PrefillKernels kNeonPrefill;
#endif

}  // namespace tandem

// Attention of many queries over paged keys, written once over a vector type `Vec`.
//
// Included by one source per instruction set. Nothing here may come from the standard library's
// inline functions: the linker keeps one copy of those for all instruction sets.
//
// A tile of keys and values is converted to float32 once and used by all panels of queries. With
// one query per lane, both products multiply a vector of queries by single numbers of the keys or
// values, which may then lie as they do in the page; maxima and sums need no step across lanes.
#pragma once

#include "prefill_kernel.hpp"
#include "prefill_rows.hpp"
#include "simd/element.hpp"
#include "vector_math.hpp"

namespace tandem {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Vectors of a panel: rows times vectors of sums fit the registers beside what they are made of.
template <class Vec>
constexpr int kPanelVectors = Vec::kWidth > 4 ? 3 : Vec::kColumns;

template <class Vec>
constexpr int kPanelLanes = kPanelVectors<Vec> * Vec::kWidth;

// Fills a tile from as many blocks as it takes, and with zeros to a multiple of kPrefillRows.
template <class Vec, class T>
void load_tile(const PrefillRun& run, Part part, int key, int count, float* target) {
    const int stride = prefill_stride(run.head_dim);
    for (int done = 0; done < count;) {
        const int left = run.block_size - (key + done) % run.block_size;
        const int rows = left < count - done ? left : count - done;
        load_rows<Vec>(T{}, run, part, key + done, rows, target + static_cast<long>(done) * stride);
        done += rows;
    }
    for (int row = count; row % kPrefillRows; ++row)
        for (int column = 0; column < stride; column += Vec::kWidth)
            Vec::store(target + static_cast<long>(row) * stride + column, Vec::zero());
}

// Scores of a panel with keys first..end-1 of the tile, as [key, lane].
template <class Vec>
void score_panel(const PrefillRun& run, const float* panel, int first, int end) {
    constexpr int kVectors = kPanelVectors<Vec>, kLanes = kPanelLanes<Vec>;
    const int stride = prefill_stride(run.head_dim), dim = run.head_dim;
    for (int key = first; key < end; key += kPrefillRows) {
        const float* rows[kPrefillRows];
        typename Vec::Reg sums[kPrefillRows][kVectors];
        for (int i = 0; i < kPrefillRows; ++i) {
            rows[i] = run.keys + static_cast<long>(key + i) * stride;
            for (int v = 0; v < kVectors; ++v) sums[i][v] = Vec::zero();
        }
        const float* query = panel;
#pragma GCC unroll 4
        for (int column = 0; column < dim; ++column, query += kLanes) {
            typename Vec::Reg queries[kVectors];
            for (int v = 0; v < kVectors; ++v) queries[v] = Vec::load(query + v * Vec::kWidth);
#pragma GCC unroll 4
            for (int i = 0; i < kPrefillRows; ++i) {
                const auto element = Vec::broadcast(rows[i][column]);
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v)
                    sums[i][v] = Vec::fma(element, queries[v], sums[i][v]);
            }
        }
        float* scores = run.scores + static_cast<long>(key) * kLanes;
        for (int i = 0; i < kPrefillRows; ++i)
            for (int v = 0; v < kVectors; ++v)
                Vec::store(scores + i * kLanes + v * Vec::kWidth, sums[i][v]);
    }
}

// -inf for keys before `unseen_before` or from `unseen_from` on, both counted from the tile's first
// key; NaN included.
template <class Vec>
typename Vec::Reg hide(typename Vec::Reg score, float key, typename Vec::Reg unseen_before,
                       typename Vec::Reg unseen_from) {
    const auto at = Vec::broadcast(key + 0.5f);
    const auto infinity = Vec::broadcast(-kMinusInfinity);
    auto low = Vec::sub(Vec::zero(), score);  // max gives its second operand beside a NaN
    low = Vec::max(low, Vec::copy_sign(infinity, Vec::sub(unseen_before, at)));
    low = Vec::max(low, Vec::copy_sign(infinity, Vec::sub(at, unseen_from)));
    return Vec::sub(Vec::zero(), low);
}

template <class Vec>
typename Vec::Reg from_tile(const std::int32_t* keys, int first_key) {
    float numbers[Vec::kWidth];
    for (int i = 0; i < Vec::kWidth; ++i) {
        const int key = keys[i] - first_key;
        numbers[i] = static_cast<float>(key < 0 ? 0 : key > kPrefillKeys ? kPrefillKeys : key);
    }
    return Vec::load(numbers);
}

template <class Vec>
void hide_unseen(const PrefillRun& run, int panel, int first_key, int first, int end) {
    constexpr int kLanes = kPanelLanes<Vec>;
    for (int lane = 0; lane < kLanes; lane += Vec::kWidth) {
        const auto from = from_tile<Vec>(run.first_seen + panel * kLanes + lane, first_key);
        const auto to = from_tile<Vec>(run.visible + panel * kLanes + lane, first_key);
        for (int key = first; key < end; ++key) {
            float* score = run.scores + static_cast<long>(key) * kLanes + lane;
            Vec::store(score, hide<Vec>(Vec::load(score), static_cast<float>(key), from, to));
        }
    }
}

// Turns scores into weights; `corrections` are by how much earlier sums shrink.
template <class Vec>
void weigh_panel(const PrefillRun& run, int panel, int first, int end,
                 typename Vec::Reg* corrections) {
    constexpr int kVectors = kPanelVectors<Vec>, kLanes = kPanelLanes<Vec>;
    const auto lowest = Vec::broadcast(-__FLT_MAX__);  // finite: -inf - -inf would be NaN
    float* scores = run.scores;
    typename Vec::Reg base[kVectors], sums[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        float* max = run.max + panel * kLanes + v * Vec::kWidth;
        const auto before = Vec::load(max);
        auto highest = before;
        for (int key = first; key < end; ++key)
            highest = Vec::max(Vec::load(scores + key * kLanes + v * Vec::kWidth), highest);
        base[v] = Vec::max(highest, lowest);
        corrections[v] = exp2<Vec>(Vec::sub(before, base[v]));
        sums[v] = Vec::zero();
        Vec::store(max, highest);
    }
    for (int key = first; key < end; ++key)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            float* score = scores + key * kLanes + v * Vec::kWidth;
            const auto weight = exp2<Vec>(Vec::sub(Vec::load(score), base[v]));
            Vec::store(score, weight);
            sums[v] = Vec::add(sums[v], weight);
        }
    for (int v = 0; v < kVectors; ++v) {
        float* weight = run.weight + panel * kLanes + v * Vec::kWidth;
        Vec::store(weight, Vec::fma(Vec::load(weight), corrections[v], sums[v]));
    }
}

// Adds values first..end-1 of the tile, weighted, to a panel's sums.
template <class Vec>
void add_panel(const PrefillRun& run, int first, int end, const typename Vec::Reg* corrections,
               float* panel) {
    constexpr int kVectors = kPanelVectors<Vec>, kLanes = kPanelLanes<Vec>;
    const int stride = prefill_stride(run.head_dim);
    for (int column = 0; column < run.head_dim; column += kPrefillRows) {
        float* target = panel + static_cast<long>(column) * kLanes;
        typename Vec::Reg sums[kPrefillRows][kVectors];
        for (int i = 0; i < kPrefillRows; ++i)
            for (int v = 0; v < kVectors; ++v)
                sums[i][v] =
                    Vec::mul(corrections[v], Vec::load(target + i * kLanes + v * Vec::kWidth));
        const float* value = run.values + static_cast<long>(first) * stride + column;
        const float* weight = run.scores + static_cast<long>(first) * kLanes;
#pragma GCC unroll 4
        for (int key = first; key < end; ++key, value += stride, weight += kLanes) {
            typename Vec::Reg weights[kVectors];
            for (int v = 0; v < kVectors; ++v) weights[v] = Vec::load(weight + v * Vec::kWidth);
#pragma GCC unroll 4
            for (int i = 0; i < kPrefillRows; ++i) {
                const auto element = Vec::broadcast(value[i]);
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v)
                    sums[i][v] = Vec::fma(element, weights[v], sums[i][v]);
            }
        }
        for (int i = 0; i < kPrefillRows; ++i)
            for (int v = 0; v < kVectors; ++v)
                Vec::store(target + i * kLanes + v * Vec::kWidth, sums[i][v]);
    }
}

template <class Vec>
void attend_panel(const PrefillRun& run, int panel, int first_key, int count) {
    constexpr int kLanes = kPanelLanes<Vec>;
    const PanelBounds& bounds = run.bounds[panel];
    const int begin = bounds.begin - first_key, end = bounds.end - first_key;
    const int first = begin < 0 ? 0 : begin / kPrefillRows * kPrefillRows;
    const int seen = end < count ? end : count;
    const int last = (seen + kPrefillRows - 1) / kPrefillRows * kPrefillRows;
    if (first >= seen) return;
    const long at = static_cast<long>(panel) * run.head_dim * kLanes;
    score_panel<Vec>(run, run.queries + at, first, last);
    if (run.soft_cap > 0)
        for (int i = first * kLanes; i < last * kLanes; i += Vec::kWidth)
            Vec::store(run.scores + i, cap_softly<Vec>(Vec::load(run.scores + i), run.soft_cap));
    if (bounds.all_begin > first_key + first || bounds.all_end < first_key + last)
        hide_unseen<Vec>(run, panel, first_key, first, last);
    typename Vec::Reg corrections[kPanelVectors<Vec>];
    weigh_panel<Vec>(run, panel, first, last, corrections);
    add_panel<Vec>(run, first, last, corrections, run.sums + at);
}

template <class Vec>
void clear_states(const PrefillRun& run) {
    const long queries = static_cast<long>(run.num_panels) * kPanelLanes<Vec>;
    for (long i = 0; i < queries; ++i) run.max[i] = kMinusInfinity;
    for (long i = 0; i < queries; ++i) run.weight[i] = 0.0f;
    for (long i = 0; i < queries * run.head_dim; ++i) run.sums[i] = 0.0f;
}

template <class Vec, class T>
void attend_prefill(const PrefillRun& run) {
    clear_states<Vec>(run);
    for (int key = run.begin; key < run.end; key += kPrefillKeys) {
        const int count = run.end - key < kPrefillKeys ? run.end - key : kPrefillKeys;
        load_tile<Vec, T>(run, kKeys, key, count, run.keys);
        load_tile<Vec, T>(run, kValues, key, count, run.values);
        for (int panel = 0; panel < run.num_panels; ++panel)
            attend_panel<Vec>(run, panel, key, count);
    }
}

typedef float Four __attribute__((vector_size(16)));

// Four rows of four to four columns.
inline __attribute__((always_inline)) void transpose(Four (&m)[4]) {
    const Four a{m[0][0], m[1][0], m[0][1], m[1][1]}, b{m[0][2], m[1][2], m[0][3], m[1][3]};
    const Four c{m[2][0], m[3][0], m[2][1], m[3][1]}, d{m[2][2], m[3][2], m[2][3], m[3][3]};
    m[0] = Four{a[0], a[1], c[0], c[1]};
    m[1] = Four{a[2], a[3], c[2], c[3]};
    m[2] = Four{b[0], b[1], d[0], d[1]};
    m[3] = Four{b[2], b[3], d[2], d[3]};
}

template <class Vec, class T>
void scale_row(const T* row, int dim, float scale, float* target) {
    const auto factor = Vec::broadcast(scale);
    int column = 0;
    for (; column + Vec::kWidth <= dim; column += Vec::kWidth)
        Vec::store(target + column, Vec::mul(factor, Vec::load(row + column)));
    if (column < dim)
        Vec::store(target + column, Vec::mul(factor, Vec::load_part(row + column, dim - column)));
}

template <class Vec, class T>
void pack_panel(const PanelRows& panel, const void* queries, float scale, float* scratch,
                float* target) {
    constexpr int kLanes = kPanelLanes<Vec>;
    const int stride = prefill_stride(panel.head_dim);
    for (int lane = 0; lane < kLanes; lane += 4) {
        for (int i = 0; i < 4; ++i) {
            float* row = scratch + i * stride;
            if (lane + i < panel.lanes)
                scale_row<Vec>(static_cast<const T*>(queries) + panel.rows[lane + i],
                               panel.head_dim, scale, row);
            else
                for (int column = 0; column < stride; column += Vec::kWidth)
                    Vec::store(row + column, Vec::zero());
        }
        for (int column = 0; column < panel.head_dim; column += 4) {
            Four m[4];
            for (int i = 0; i < 4; ++i)
                __builtin_memcpy(&m[i], scratch + i * stride + column, sizeof m[i]);
            transpose(m);
            for (int i = 0; i < 4; ++i)
                __builtin_memcpy(target + static_cast<long>(column + i) * kLanes + lane, &m[i],
                                 sizeof m[i]);
        }
    }
}

template <class Vec>
void unpack_panel(const PanelRows& panel, const float* source, const float* factors, float* out) {
    constexpr int kLanes = kPanelLanes<Vec>;
    for (int lane = 0; lane < panel.lanes; lane += 4) {
        Four factor;
        __builtin_memcpy(&factor, factors + lane, sizeof factor);
        const int rows = panel.lanes - lane < 4 ? panel.lanes - lane : 4;
        for (int column = 0; column < panel.head_dim; column += 4) {
            Four m[4];
            for (int i = 0; i < 4; ++i) {
                __builtin_memcpy(&m[i], source + static_cast<long>(column + i) * kLanes + lane,
                                 sizeof m[i]);
                m[i] *= factor;
            }
            transpose(m);
            for (int i = 0; i < rows; ++i)
                __builtin_memcpy(out + panel.rows[lane + i] + column, &m[i], sizeof m[i]);
        }
    }
}

template <class Vec>
constexpr PrefillKernels make_prefill() {
    return {kPanelLanes<Vec>,
            attend_prefill<Vec, float>,
            attend_prefill<Vec, Half>,
            attend_prefill<Vec, BFloat>,
            attend_prefill<Vec, Float8>,
            attend_prefill<Vec, Codes<8>>,
            attend_prefill<Vec, Codes<4>>,
            pack_panel<Vec, float>,
            pack_panel<Vec, Half>,
            pack_panel<Vec, BFloat>,
            unpack_panel<Vec>};
}

}  // namespace
}  // namespace tandem

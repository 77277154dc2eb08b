#include "prefill.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "kernel_set.hpp"
#include "quantized_page.hpp"
#include "thread_scratch.hpp"

namespace tandem {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kMostLanes = 64;

AttendPrefill choose_attend(const PrefillKernels& kernels, DType page_type) {
    switch (page_type) {
        case DType::kFloat16:
            return kernels.attend_float16;
        case DType::kBFloat16:
            return kernels.attend_bfloat16;
        case DType::kFloat8:
            return kernels.attend_float8;
        case DType::kInt8:
            return kernels.attend_int8;
        case DType::kInt4:
            return kernels.attend_int4;
        case DType::kFloat32:
            break;
    }
    return kernels.attend_float32;
}

PackPanel choose_pack(const PrefillKernels& kernels, DType type) {
    if (type == DType::kFloat16) return kernels.pack_float16;
    return type == DType::kBFloat16 ? kernels.pack_bfloat16 : kernels.pack_float32;
}

constexpr std::size_t round_up(std::size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

PrefillJob::PrefillJob(std::shared_ptr<const PrefillPlan> plan, const AttentionMemory& memory,
                       float scale, float soft_cap, Isa isa, BufferStore& buffers)
    : Job(plan->num_parts()),
      plan_(std::move(plan)),
      memory_(memory),
      scale_(scale * std::numbers::log2e_v<float>),
      soft_cap_(soft_cap * std::numbers::log2e_v<float>),
      kernels_(kernel_set(isa).prefill),
      attend_(choose_attend(kernels_, memory.page_type)),
      pack_(choose_pack(kernels_, memory.query_type)),
      max_panels_((plan_->max_tile_tokens * plan_->shape.group() + kernels_.lanes - 1) /
                  kernels_.lanes),
      attending_(plan_->num_attending_parts()),
      partials_(buffers, state_floats(max_panels_) * plan_->num_partials) {
    check_scales(scale, soft_cap);
    check_blocks(plan_->max_block, memory_.num_blocks);
}

int PrefillJob::count_queries(const QueryTile& tile) const {
    return tile.num_tokens * plan_->shape.group();
}

int PrefillJob::count_panels(const QueryTile& tile) const {
    return (count_queries(tile) + kernels_.lanes - 1) / kernels_.lanes;
}

std::size_t PrefillJob::state_floats(int panels) const {
    const std::size_t lanes = std::size_t(panels) * kernels_.lanes;
    return round_up(lanes * plan_->shape.head_dim) + 2 * round_up(lanes);
}

PrefillJob::State PrefillJob::place_state(float* at, int panels) const {
    const std::size_t lanes = std::size_t(panels) * kernels_.lanes;
    float* max = at + round_up(lanes * plan_->shape.head_dim);
    return {at, max, max + round_up(lanes)};
}

std::size_t PrefillJob::scratch_floats() const {
    const std::size_t lanes = std::size_t(max_panels_) * kernels_.lanes;
    return state_floats(max_panels_) + round_up(lanes * plan_->shape.head_dim) +
           2 * round_up(lanes) + round_up(4 * max_panels_) +
           2 * std::size_t(kPrefillKeys) * prefill_stride(plan_->shape.head_dim) +
           std::size_t(kPrefillKeys) * kernels_.lanes;
}

void PrefillJob::run_part(int part) {
    const int attending = plan_->num_attending_parts();
    if (part >= attending) return merge_part(part - attending);
    const FirstPhase::Part own(attending_);
    float* scratch = thread_scratch().reserve(scratch_floats());
    for (int i = plan_->part_start[part]; i < plan_->part_start[part + 1]; ++i)
        attend(plan_->runs[i], scratch);
}

void PrefillJob::attend(const KeyRun& run, float* scratch) const {
    const AttentionShape& shape = plan_->shape;
    const QueryTile& tile = plan_->tiles[run.tile];
    const int panels = count_panels(tile);
    const std::size_t lanes = std::size_t(panels) * kernels_.lanes;
    const auto take = [&](std::size_t floats) {
        return std::exchange(scratch, scratch + round_up(floats));
    };
    float* queries = take(lanes * shape.head_dim);
    auto* first_seen = reinterpret_cast<std::int32_t*>(take(lanes));
    auto* visible = reinterpret_cast<std::int32_t*>(take(lanes));
    auto* bounds = reinterpret_cast<PanelBounds*>(take(4 * std::size_t(panels)));
    float* keys = take(std::size_t(kPrefillKeys) * prefill_stride(shape.head_dim));
    float* values = take(std::size_t(kPrefillKeys) * prefill_stride(shape.head_dim));
    float* scores = take(std::size_t(kPrefillKeys) * kernels_.lanes);
    const State state =
        run.partial < 0
            ? place_state(scratch, panels)
            : place_state(partials_.data() + run.partial * state_floats(max_panels_), max_panels_);
    pack(tile, keys, queries);
    fill_bounds(tile, bounds, first_seen, visible);
    const QuantizedPage page{shape.code_bits, shape.kv_heads, shape.block_size, shape.head_dim};
    attend_({.pages = memory_.pages,
             .blocks = plan_->blocks.data() + plan_->rows[tile.row].blocks,
             .kv_heads = shape.kv_heads,
             .kv_head = tile.kv_head,
             .block_size = shape.block_size,
             .head_dim = shape.head_dim,
             .codes = page.layout(),
             .num_panels = panels,
             .queries = queries,
             .bounds = bounds,
             .first_seen = first_seen,
             .visible = visible,
             .soft_cap = soft_cap_,
             .begin = run.begin,
             .end = run.end,
             .keys = keys,
             .values = values,
             .scores = scores,
             .sums = state.sums,
             .max = state.max,
             .weight = state.weight});
    if (run.partial < 0) write(tile, state);
}

// Lanes without a query see what the last query sees.
void PrefillJob::fill_bounds(const QueryTile& tile, PanelBounds* bounds, std::int32_t* first_seen,
                             std::int32_t* visible) const {
    const int group = plan_->shape.group(), lanes = kernels_.lanes;
    for (int panel = 0; panel < count_panels(tile); ++panel) {
        for (int lane = panel * lanes; lane < (panel + 1) * lanes; ++lane) {
            const int token = tile.first_token + std::min(lane / group, tile.num_tokens - 1);
            first_seen[lane] = plan_->first_seen[token];
            visible[lane] = plan_->visible[token];
        }
        const int first = panel * lanes, last = first + lanes - 1;  // both ascend
        bounds[panel] = {first_seen[first], first_seen[last], visible[first], visible[last]};
    }
}

PrefillJob::QueryPlace PrefillJob::place(const QueryTile& tile, int query) const {
    const int group = plan_->shape.group();
    return {tile.first_token + query / group, tile.kv_head * group + query % group};
}

int PrefillJob::lanes_of_panel(const QueryTile& tile, int panel) const {
    return std::min(kernels_.lanes, count_queries(tile) - panel * kernels_.lanes);
}

void PrefillJob::pack(const QueryTile& tile, float* rows, float* panels) const {
    const int dim = plan_->shape.head_dim;
    for (int panel = 0; panel < count_panels(tile); ++panel) {
        std::int64_t begins[kMostLanes];
        const int lanes = lanes_of_panel(tile, panel);
        for (int lane = 0; lane < lanes; ++lane) {
            const QueryPlace at = place(tile, panel * kernels_.lanes + lane);
            begins[lane] =
                plan_->tokens[at.token] * memory_.query_stride + std::int64_t{at.head} * dim;
        }
        pack_({lanes, dim, begins}, memory_.queries, scale_, rows,
              panels + std::size_t(panel) * kernels_.lanes * dim);
    }
}

void PrefillJob::merge_part(int part) const {
    attending_.wait();
    for (int i = plan_->merge_start[part]; i < plan_->merge_start[part + 1]; ++i)
        merge(plan_->merges[i]);
}

// Brings all partials of a tile to their common maximum and adds them to the first.
void PrefillJob::merge(const TileMerge& merge) const {
    const QueryTile& tile = plan_->tiles[merge.tile];
    const int lanes = kernels_.lanes, dim = plan_->shape.head_dim;
    const auto partial = [&](int i) {
        return place_state(partials_.data() + (merge.first + i) * state_floats(max_panels_),
                           max_panels_);
    };
    const State total = partial(0);
    for (int panel = 0; panel < count_panels(tile); ++panel)
        for (int i = 1; i < merge.count; ++i) {
            const State part = partial(i);
            float ours[kMostLanes], theirs[kMostLanes];
            for (int lane = 0; lane < lanes; ++lane) {
                const int at = panel * lanes + lane;
                const float max = std::max(total.max[at], part.max[at]);
                const auto factor = [&](float own) {
                    return own == kMinusInfinity ? 0.0f : std::exp2(own - max);
                };
                ours[lane] = factor(total.max[at]);
                theirs[lane] = factor(part.max[at]);
                total.weight[at] = total.weight[at] * ours[lane] + part.weight[at] * theirs[lane];
                total.max[at] = max;
            }
            float* sums = total.sums + std::size_t(panel) * lanes * dim;
            const float* other = part.sums + std::size_t(panel) * lanes * dim;
            for (int column = 0; column < dim; ++column, sums += lanes, other += lanes)
                for (int lane = 0; lane < lanes; ++lane)
                    sums[lane] = sums[lane] * ours[lane] + other[lane] * theirs[lane];
        }
    write(tile, total);
}

void PrefillJob::write(const QueryTile& tile, const State& state) const {
    const int dim = plan_->shape.head_dim, heads = plan_->shape.heads;
    for (int panel = 0; panel < count_panels(tile); ++panel) {
        std::int64_t begins[kMostLanes];
        float factors[kMostLanes] = {};
        const int lanes = lanes_of_panel(tile, panel);
        for (int lane = 0; lane < lanes; ++lane) {
            const int query = panel * kernels_.lanes + lane;
            const QueryPlace at = place(tile, query);
            const std::int64_t row = std::int64_t{at.token} * heads + at.head;
            const Normalised result = normalise(state.max[query], state.weight[query],
                                                memory_.sinks ? memory_.sinks + at.head : nullptr);
            begins[lane] = row * dim;
            factors[lane] = result.factor;
            memory_.lse[row] = result.lse;
        }
        kernels_.unpack({lanes, dim, begins},
                        state.sums + std::size_t(panel) * kernels_.lanes * dim, factors,
                        memory_.out);
    }
}

}  // namespace tandem

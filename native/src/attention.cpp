#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "convert.hpp"
#include "kernel_set.hpp"
#include "thread_scratch.hpp"

namespace tandem {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

AttendRun choose_attend(const AttentionKernels& kernels, DType type, const CodeLayout& codes) {
    switch (type) {
        case DType::kFloat16:
            return kernels.float16;
        case DType::kBFloat16:
            return kernels.bfloat16;
        case DType::kFloat8:
            return kernels.float8;
        case DType::kInt8:
            return codes.group_size == kCodeRun ? kernels.codes8_32 : kernels.codes8;
        case DType::kInt4:
            return codes.group_size == kCodeRun ? kernels.codes4_32 : kernels.codes4;
        case DType::kFloat32:
            break;
    }
    return kernels.float32;
}

// target[i] = source[first + i] * scale
void load_scaled(const void* source, DType type, std::int64_t first, int count, float scale,
                 float* target) {
    if (type == DType::kFloat32) {
        const auto* values = static_cast<const float*>(source) + first;
        for (int i = 0; i < count; ++i) target[i] = values[i] * scale;
        return;
    }
    const auto* bits = static_cast<const std::uint16_t*>(source) + first;
    if (type == DType::kFloat16) {
        for (int i = 0; i < count; ++i) target[i] = from_half(bits[i]) * scale;
    } else {
        for (int i = 0; i < count; ++i) target[i] = from_bfloat(bits[i]) * scale;
    }
}

// Token of the row and query head of the i-th query in the order of `AttentionRun`.
struct QueryPlace {
    int token;
    int head;

    QueryPlace(int index, int num_tokens, int group)
        : token(index % (num_tokens * group) / group),
          head(index / (num_tokens * group) * group + index % group) {}
};

}  // namespace

AttentionJob::AttentionJob(std::shared_ptr<const AttentionPlan> plan, const AttentionMemory& memory,
                           float scale, float soft_cap, Isa isa, BufferStore& buffers)
    : Job(plan->num_parts()),
      plan_(std::move(plan)),
      memory_(memory),
      scale_(scale * std::numbers::log2e_v<float>),
      soft_cap_(soft_cap * std::numbers::log2e_v<float>),
      kernels_(kernel_set(isa).attention),
      attend_(choose_attend(kernels_, memory.page_type, quantized_page().layout())),
      groups_(is_quantized(memory.page_type) ? quantized_page().groups() : 0),
      padded_dim_(groups_ > 0 ? quantized_page().row_elements()
                              : (plan_->shape.head_dim + kPadDim - 1) / kPadDim * kPadDim),
      max_queries_(plan_->max_row_tokens * plan_->shape.heads),
      // A multiple of 16 floats, so that every state is aligned.
      state_floats_(std::size_t(max_queries_) * padded_dim_ + (2 * max_queries_ + 15) / 16 * 16),
      attending_(plan_->num_attending_parts()),
      partials_(buffers, state_floats_ * plan_->num_partials) {
    check_scales(scale, soft_cap);
    check_blocks(plan_->max_block, memory_.num_blocks);
}

void AttentionJob::run_part(int part) {
    const int attending = plan_->num_attending_parts();
    if (part >= attending) return merge_part(part - attending);
    const FirstPhase::Part own(attending_);
    FloatBuffer& scratch = thread_scratch();
    const Segment* end = plan_->segments.data() + plan_->part_start[part + 1];
    for (const Segment* s = plan_->segments.data() + plan_->part_start[part]; s != end; ++s)
        attend(*s, s + 1 == end ? nullptr : s + 1, scratch);
}

void AttentionJob::attend(const Segment& segment, const Segment* next, FloatBuffer& scratch) const {
    const AttentionShape& shape = plan_->shape;
    const AttentionPlan::Row& row = plan_->rows[segment.row];
    const int head_queries = row.num_tokens * shape.group();
    const int queries = row.num_tokens * shape.heads;
    const int padded = (queries + 15) / 16 * 16;
    float* at = scratch.reserve(std::size_t(padded) * (2 * padded_dim_ + kMaxTile + 5 + groups_));
    const auto take = [&](std::size_t floats) { return std::exchange(at, at + floats); };
    float* query = take(std::size_t(queries) * padded_dim_);
    float* scores = take(std::size_t(padded) * kMaxTile);
    float* correction = take(padded);
    auto* first_seen = reinterpret_cast<std::int32_t*>(take(padded));
    auto* visible = reinterpret_cast<std::int32_t*>(take(padded));
    float* query_sums = groups_ > 0 ? take(std::size_t(padded) * groups_) : nullptr;
    const Start after = first_key(next);
    State state{};
    if (segment.partial >= 0) {
        state = partial(segment.partial);
    } else {
        state.max = take(padded);
        state.weight = take(padded);
        state.sums = take(std::size_t(queries) * padded_dim_);
    }
    load_queries(segment, query);
    for (int i = 0; i < head_queries; ++i) {
        const int token = row.first_token + i / shape.group();
        first_seen[i] = plan_->first_seen[token];
        visible[i] = plan_->visible[token];
    }
    attend_({.pages = memory_.pages,
             .blocks = plan_->blocks.data() + row.blocks,
             .kv_heads = shape.kv_heads,
             .block_size = shape.block_size,
             .head_dim = shape.head_dim,
             .padded_dim = padded_dim_,
             .num_queries = head_queries,
             .queries = query,
             .first_seen = first_seen,
             .visible = visible,
             .soft_cap = soft_cap_,
             .begin = segment.begin,
             .end = segment.end,
             .next = after.key,
             .next_pairs = after.pairs,
             .codes = quantized_page().layout(),
             .query_sums = query_sums,
             .scores = scores,
             .correction = correction,
             .sums = state.sums,
             .max = state.max,
             .weight = state.weight});
    if (segment.partial < 0) write(row, state);
}

AttentionJob::Start AttentionJob::first_key(const Segment* segment) const {
    if (!segment || segment->begin == segment->end) return {nullptr, nullptr};
    const AttentionShape& shape = plan_->shape;
    const AttentionPlan::Row& row = plan_->rows[segment->row];
    const std::int64_t block = plan_->blocks[row.blocks + segment->begin / shape.block_size];
    const std::int64_t token = segment->begin % shape.block_size;
    const auto* pages = static_cast<const char*>(memory_.pages);
    if (groups_ > 0) {
        const QuantizedPage layout = quantized_page();
        const char* page = pages + block * layout.page_bytes();
        return {page + layout.code_offset(0, token), page + layout.pair_offset(0, token)};
    }
    const std::int64_t element = block * shape.page_elements() + token * shape.head_dim;
    return {pages + element * element_bytes(memory_.page_type), nullptr};
}

QuantizedPage AttentionJob::quantized_page() const {
    const AttentionShape& shape = plan_->shape;
    return {memory_.page_type == DType::kInt4 ? 4 : 8, shape.kv_heads, shape.block_size,
            shape.head_dim};
}

void AttentionJob::load_queries(const Segment& segment, float* target) const {
    const AttentionShape& shape = plan_->shape;
    const AttentionPlan::Row& row = plan_->rows[segment.row];
    for (int i = 0; i < row.num_tokens * shape.heads; ++i, target += padded_dim_) {
        const QueryPlace place(i, row.num_tokens, shape.group());
        const std::int64_t first =
            plan_->tokens[row.first_token + place.token] * memory_.query_stride +
            std::int64_t{place.head} * shape.head_dim;
        load_scaled(memory_.queries, memory_.query_type, first, shape.head_dim, scale_, target);
        std::fill(target + shape.head_dim, target + padded_dim_, 0.0f);
    }
}

AttentionJob::State AttentionJob::partial(std::int32_t index) const {
    float* sums = partials_.data() + index * state_floats_;
    float* max = sums + std::size_t(max_queries_) * padded_dim_;
    return {sums, max, max + max_queries_};
}

void AttentionJob::merge_part(int part) const {
    attending_.wait();
    for (int i = plan_->merge_start[part]; i < plan_->merge_start[part + 1]; ++i)
        merge(plan_->merge_runs[i]);
}

// Brings all partials of each query to their common maximum and adds them.
void AttentionJob::merge(const MergeRun& run) const {
    const Merge& merge = plan_->merges[run.merge];
    const AttentionPlan::Row& row = plan_->rows[merge.row];
    float* factors = thread_scratch().reserve(static_cast<std::size_t>(merge.count));
    for (int q = run.begin; q < run.end; ++q) {
        float max = kMinusInfinity, weight = 0.0f;
        for (int i = 0; i < merge.count; ++i) max = std::max(max, partial(merge.first + i).max[q]);
        const float base = max == kMinusInfinity ? 0.0f : max;  // nothing seen: all sums are 0
        for (int i = 0; i < merge.count; ++i) {
            const State part = partial(merge.first + i);
            factors[i] = std::exp2(part.max[q] - base);
            weight += factors[i] * part.weight[q];
        }
        const Place place = place_of(row, q);
        const Normalised result = normalise(max, weight, place.sink);
        for (int i = 0; i < merge.count; ++i) factors[i] *= result.factor;
        kernels_.add_states({.sums = partial(merge.first).sums + std::size_t(q) * padded_dim_,
                             .stride = static_cast<std::int64_t>(state_floats_),
                             .factors = factors,
                             .count = merge.count,
                             .out = place.out,
                             .head_dim = plan_->shape.head_dim});
        *place.lse = result.lse;
    }
}

AttentionJob::Place AttentionJob::place_of(const AttentionPlan::Row& row, int query) const {
    const AttentionShape& shape = plan_->shape;
    const QueryPlace place(query, row.num_tokens, shape.group());
    const std::int64_t head =
        std::int64_t{row.first_token + place.token} * shape.heads + place.head;
    return {memory_.out + head * shape.head_dim, memory_.lse + head,
            memory_.sinks ? memory_.sinks + place.head : nullptr};
}

void AttentionJob::write(const AttentionPlan::Row& row, const State& state) const {
    const AttentionShape& shape = plan_->shape;
    for (int q = 0; q < row.num_tokens * shape.heads; ++q) {
        const Place place = place_of(row, q);
        const float* sums = state.sums + std::size_t(q) * padded_dim_;
        const Normalised result = normalise(state.max[q], state.weight[q], place.sink);
        for (int c = 0; c < shape.head_dim; ++c) place.out[c] = sums[c] * result.factor;
        *place.lse = result.lse;
    }
}

}  // namespace tandem

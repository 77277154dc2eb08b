#include "layer_stack.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "append.hpp"
#include "attention.hpp"
#include "prefill.hpp"
#include "scratch.hpp"

namespace tandem {
namespace {

// One layer of a step.
struct Turn {
    const Workers& workers;
    const LayerWeights& layer;
    const Rotation& rotation;
    const StepPlans& plans;
    const StepAttention& attention;
    void* pages;
};

// Of keys and values as `run_pre` leaves them.
AppendMemory append_memory(const Turn& turn, const float* qkv) {
    const HeadShape& shape = turn.layer.heads;
    const StepAttention& attention = turn.attention;
    const float* keys = qkv + std::int64_t{shape.heads} * shape.head_dim;
    return {.keys = keys,
            .values = keys + std::int64_t{shape.kv_heads} * shape.head_dim,
            .key_stride = shape.token_elements(),
            .value_stride = shape.token_elements(),
            .source_type = DType::kFloat32,
            .slots = attention.slots,
            .pages = turn.pages,
            .page_type = attention.page_type,
            .num_blocks = attention.num_blocks,
            .kv_heads = shape.kv_heads,
            .block_size = turn.plans.rows().shape.block_size,
            .head_dim = shape.head_dim};
}

// From the step's token `first` on.
AttentionMemory attention_memory(const Turn& turn, std::int64_t first, const float* qkv, float* out,
                                 float* lse) {
    const HeadShape& shape = turn.layer.heads;
    return {.queries = qkv + first * shape.token_elements(),
            .query_stride = shape.token_elements(),
            .query_type = DType::kFloat32,
            .pages = turn.pages,
            .page_type = turn.attention.page_type,
            .num_blocks = turn.attention.num_blocks,
            .out = out + first * shape.heads * shape.head_dim,
            .lse = lse + first * shape.heads};
}

template <class AnyJob, class Plan>
void attend(const Turn& turn, const std::shared_ptr<const Plan>& plan,
            const AttentionMemory& memory) {
    if (!plan) return;
    const Workers& workers = turn.workers;
    AnyJob job(plan, memory, turn.attention.scale, turn.attention.soft_cap, workers.isa,
               workers.pool.buffers());
    workers.pool.run(job);
}

// From the residual to attention's result, [tokens, heads * head_dim].
void run_attention(const Turn& turn, std::int64_t tokens, const float* residual, float* out) {
    const HeadShape& shape = turn.layer.heads;
    Pool& pool = turn.workers.pool;
    const Scratch qkv(pool.buffers(), tokens, static_cast<int>(shape.token_elements()));
    const Scratch lse(pool.buffers(), tokens, shape.heads);
    AppendJob append(append_memory(turn, qkv.data()), pool.num_threads(), pool.buffers());
    run_pre(turn.workers, turn.layer, turn.rotation, tokens, residual, qkv.data());
    pool.run(append);
    const StepPlans& plans = turn.plans;
    const auto memory_from = [&](std::int64_t first) {
        return attention_memory(turn, first, qkv.data(), out, lse.data());
    };
    attend<AttentionJob>(turn, plans.decode, memory_from(0));
    attend<PrefillJob>(turn, plans.prefill, memory_from(plans.decode_tokens()));
}

// A layer of the reader's, from when it is there until its slot may be filled anew.
class HeldSlot {
  public:
    HeldSlot(WeightReader& reader, int layer) : reader_(reader), begin_(reader.acquire(layer)) {}
    ~HeldSlot() { reader_.release(); }
    HeldSlot(const HeldSlot&) = delete;
    HeldSlot& operator=(const HeldSlot&) = delete;

    // From the first slot to where the layer begins; what is resident stays.
    template <class T>
    const T* moved(const T* pointer) const {
        if (!reader_.is_in_first_slot(pointer)) return pointer;
        const auto* from = reinterpret_cast<const std::byte*>(pointer);
        return reinterpret_cast<const T*>(begin_ + (from - reader_.first_slot()));
    }

    void move(LinearWeight& weight) const {
        weight.data = moved(weight.data);
        weight.scales = moved(weight.scales);
        weight.zeros = moved(weight.zeros);
    }

  private:
    WeightReader& reader_;
    const std::byte* begin_;
};

// A layer's weights while they are there.
class HeldWeights {
  public:
    HeldWeights(const StackLayer& layer, WeightReader* reader, BufferStore& buffers)
        : weights_(layer.weights) {
        if (layer.read < 0) return;
        slot_.emplace(*reader, layer.read);
        for (LinearWeight* weight : {&weights_.qkv, &weights_.output, &weights_.up, &weights_.down})
            slot_->move(*weight);
        if (weights_.experts) move_experts(buffers);
    }
    HeldWeights(const HeldWeights&) = delete;
    HeldWeights& operator=(const HeldWeights&) = delete;

    const LayerWeights& get() const { return weights_; }

  private:
    void move_experts(BufferStore& buffers) {
        experts_ = *weights_.experts;
        each_.emplace(buffers, experts_.weights.size());
        std::ranges::copy(experts_.weights, each_->all().begin());
        slot_->move(experts_.router);
        for (ExpertWeights& expert : each_->all()) {
            slot_->move(expert.up);
            slot_->move(expert.down);
        }
        experts_.weights = each_->all();
        weights_.experts = &experts_;
    }

    LayerWeights weights_;
    Experts experts_{};
    std::optional<HeldSlot> slot_;
    std::optional<Borrowed<ExpertWeights>> each_;
};

void check(const StepAttention& attention) {
    check_scales(attention.scale, attention.soft_cap);
    for (const StepPlans& plans : attention.plans) {
        if (plans.decode) check_blocks(plans.decode->max_block, attention.num_blocks);
        if (plans.prefill) check_blocks(plans.prefill->max_block, attention.num_blocks);
    }
}

LayerScratch layer_scratch(const LayerWeights& layer) {
    constexpr std::int64_t kFloat = sizeof(float);
    const HeadShape& heads = layer.heads;
    const std::int64_t out = kFloat * heads.heads * heads.head_dim,
                       hidden = kFloat * layer.hidden();
    const std::int64_t attending = kFloat * (heads.token_elements() + heads.heads) + hidden;
    const std::int64_t normed_branch = layer.post_mlp_norm.weight ? hidden : 0;
    const ExpertScratch mlp = layer.experts
                                  ? expert_scratch(*layer.experts)
                                  : ExpertScratch{kFloat * layer.intermediate() + normed_branch, 0};
    return {out + std::max(attending, hidden + mlp.token_bytes), mlp.bytes};
}

}  // namespace

void run_layers(const Workers& workers, std::span<const StackLayer> layers,
                std::span<const Rotation> rotations, const StepAttention& attention,
                std::int64_t tokens, float* residual, WeightReader* reader) {
    check(attention);
    char* pages = static_cast<char*>(attention.pages);
    for (const StackLayer& each : layers) {
        const HeldWeights held(each, reader, workers.pool.buffers());
        const LayerWeights& layer = held.get();
        const Turn turn{.workers = workers,
                        .layer = layer,
                        .rotation = rotations[each.rotation],
                        .plans = attention.plans[each.plans],
                        .attention = attention,
                        .pages = pages};
        const Scratch out(workers.pool.buffers(), tokens, layer.heads.heads * layer.heads.head_dim);
        run_attention(turn, tokens, residual, out.data());
        run_post(workers, layer, tokens, out.data(), residual);
        pages += attention.layer_bytes;
    }
}

LayerScratch layers_scratch(std::span<const StackLayer> layers) {
    LayerScratch most{0, 0};
    for (const StackLayer& layer : layers) {
        const LayerScratch own = layer_scratch(layer.weights);
        most.token_bytes = std::max(most.token_bytes, own.token_bytes);
        most.bytes = std::max(most.bytes, own.bytes);
    }
    return most;
}

}  // namespace tandem

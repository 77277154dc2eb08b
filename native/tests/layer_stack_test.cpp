// Stacks of random layers against their stages and plain attention between them; built with
// sanitizers.
#include "layer_stack.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "layer_case.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;
using namespace tandem::test;

constexpr float kScale = 0.5f;
constexpr float kSoftCap = 1.5f;
constexpr int kBlockSize = 16;

// Sequences from nothing, a block each: some of at most eight tokens, then some longer ones.
struct Step {
    std::vector<int> lengths;
    std::size_t num_short;
    std::int64_t tokens = 0;
    std::vector<std::int64_t> slots;
    std::vector<int> first;  // each token's sequence begins there

    explicit Step(Random& random) : num_short(std::size_t(draw(random, 0, 2))) {
        const int num_long = draw(random, num_short ? 0 : 1, 2);
        for (std::size_t i = 0; i < num_short; ++i) lengths.push_back(draw(random, 1, 8));
        for (int i = 0; i < num_long; ++i) lengths.push_back(draw(random, 9, kBlockSize));
        for (std::size_t row = 0; row < lengths.size(); ++row) {
            first.insert(first.end(), std::size_t(lengths[row]), static_cast<int>(tokens));
            for (int i = 0; i < lengths[row]; ++i)
                slots.push_back(std::int64_t(row) * kBlockSize + i);
            tokens += lengths[row];
        }
    }

    template <class Plan>
    std::shared_ptr<const Plan> plan(const HeadShape& heads, std::size_t begin, std::size_t end,
                                     int threads, int window) const {
        if (begin == end) return nullptr;
        std::vector<std::int32_t> start{0}, positions, table;
        for (std::size_t row = begin; row < end; ++row) {
            for (int i = 0; i < lengths[row]; ++i) positions.push_back(i);
            start.push_back(static_cast<std::int32_t>(positions.size()));
            table.push_back(static_cast<std::int32_t>(row));
        }
        const AttentionShape shape{heads.heads, heads.kv_heads, kBlockSize, heads.head_dim};
        const AttentionArrays arrays{start, positions, table, {}, {}, false, window};
        return std::make_shared<Plan>(shape, arrays, threads);
    }
    StepPlans plans(const HeadShape& heads, int threads, int window) const {
        return {plan<AttentionPlan>(heads, 0, num_short, threads, window),
                plan<PrefillPlan>(heads, num_short, lengths.size(), threads, window)};
    }
};

// Attention of one token's head to the keys from `first` on.
void attend(const HeadShape& heads, const float* qkv, int token, int head, int first, float* out) {
    const std::size_t width = std::size_t(heads.token_elements()), dim = heads.head_dim;
    const int group = heads.heads / heads.kv_heads;
    const float* query = qkv + token * width + head * dim;
    const std::size_t key = (heads.heads + head / group) * dim;
    const std::size_t value = key + heads.kv_heads * dim;
    double total = 0;
    Vector sum(dim, 0.0);
    for (int other = first; other <= token; ++other) {
        const float* row = qkv + other * width;
        double score = 0;
        for (std::size_t i = 0; i < dim; ++i) score += kScale * double(query[i]) * row[key + i];
        score = kSoftCap * std::tanh(score / kSoftCap);
        total += std::exp(score);
        for (std::size_t i = 0; i < dim; ++i) sum[i] += std::exp(score) * row[value + i];
    }
    for (std::size_t i = 0; i < dim; ++i) out[i] = float(sum[i] / total);
}

void run_plainly(const Workers& workers, const LayerWeights& layer, const Rotation& rotation,
                 int window, const Step& step, float* residual) {
    const HeadShape& heads = layer.heads;
    std::vector<float> qkv(step.tokens * heads.token_elements());
    std::vector<float> out(step.tokens * heads.heads * heads.head_dim);
    run_pre(workers, layer, rotation, step.tokens, residual, qkv.data());
    for (int token = 0; token < step.tokens; ++token) {
        const int first =
            window ? std::max(step.first[token], token + 1 - window) : step.first[token];
        for (int head = 0; head < heads.heads; ++head)
            attend(heads, qkv.data(), token, head, first,
                   out.data() + (std::size_t(token) * heads.heads + head) * heads.head_dim);
    }
    run_post(workers, layer, step.tokens, out.data(), residual);
}

void run_stack(Random& random, Pool& pool, Isa isa) {
    const Step step(random);
    Case c{.random = random};
    c.tokens = static_cast<int>(step.tokens);
    if (draw(random, 0, 3) == 0) c.use_experts();
    std::vector<std::unique_ptr<Layer>> layers;
    std::vector<StackLayer> stack;
    for (int i = draw(random, 1, 3); i > 0; --i) {
        layers.push_back(std::make_unique<Layer>(c));
        stack.push_back({layers.back()->weights(), draw(random, 0, 1), draw(random, 0, 1)});
    }
    const HeadShape& heads = stack[0].weights.heads;
    const std::size_t angles = std::size_t(step.tokens) * heads.head_dim;
    const Array cos[] = {{random, angles}, {random, angles}};
    const Array sin[] = {{random, angles}, {random, angles}};
    const Array residual(random, std::size_t(step.tokens) * c.hidden);
    std::vector<Rotation> rotations(2);
    for (int i = 0; c.rotates && i < 2; ++i) rotations[i] = {cos[i].get(), sin[i].get()};
    const int windows[] = {0, draw(random, 1, kBlockSize)};
    const Workers workers{pool, isa};
    const std::size_t layer_floats =
        step.lengths.size() * 2 * heads.kv_heads * kBlockSize * heads.head_dim;
    const std::unique_ptr<float[]> pages(new float[layers.size() * layer_floats]());
    StepAttention attention{.plans = {step.plans(heads, pool.num_threads(), windows[0]),
                                      step.plans(heads, pool.num_threads(), windows[1])},
                            .slots = step.slots,
                            .pages = pages.get(),
                            .layer_bytes = static_cast<std::int64_t>(layer_floats * sizeof(float)),
                            .page_type = DType::kFloat32,
                            .num_blocks = static_cast<std::int64_t>(step.lengths.size()),
                            .scale = kScale,
                            .soft_cap = kSoftCap};

    std::vector<float> expected(residual.get(), residual.get() + step.tokens * c.hidden);
    StepAttention refused = attention;
    refused.num_blocks -= 1;  // the last row's block, and its slots
    bool threw = false;
    try {
        run_layers(workers, stack, rotations, refused, step.tokens, residual.get());
    } catch (const std::invalid_argument&) {
        threw = true;
    }
    CHECK(threw);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(residual.get()[i] == expected[i]);

    run_layers(workers, stack, rotations, attention, step.tokens, residual.get());
    for (const auto& layer : stack)
        run_plainly(workers, layer.weights, rotations[layer.rotation], windows[layer.plans], step,
                    expected.data());
    check_close({residual.get(), expected.size()}, Vector(expected.begin(), expected.end()));
}

}  // namespace

int main() {
    Pool pool({.num_threads = 2});
    for (Isa isa : supported_isas()) {
        Random random(6);
        for (int i = 0; i < 40; ++i) run_stack(random, pool, isa);
    }
    return 0;
}

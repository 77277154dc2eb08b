// Stacks of random layers against their stages and plain attention between them; built with
// sanitizers.
#include "layer_stack.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "count_allocations.hpp"
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

// A random stack and a step for it, in memory of exactly the size that may be touched.
struct Stack {
    Step step;
    Case c;
    std::vector<std::unique_ptr<Layer>> layers;
    std::vector<StackLayer> stack;
    std::vector<Array> cos, sin;
    std::vector<Rotation> rotations{2};
    int windows[2];
    std::unique_ptr<float[]> pages;
    StepAttention attention;

    Stack(Random& random, Pool& pool, bool experts) : step(random), c{.random = random} {
        c.tokens = static_cast<int>(step.tokens);
        if (experts) c.use_experts();
        for (int i = draw(random, 1, 3); i > 0; --i) {
            layers.push_back(std::make_unique<Layer>(c));
            stack.push_back({layers.back()->weights(), draw(random, 0, 1), draw(random, 0, 1)});
        }
        const HeadShape& heads = stack[0].weights.heads;
        for (int i = 0; i < 2; ++i) {
            cos.emplace_back(random, std::size_t(step.tokens) * heads.head_dim);
            sin.emplace_back(random, std::size_t(step.tokens) * heads.head_dim);
            if (c.rotates) rotations[i] = {cos[i].get(), sin[i].get()};
        }
        windows[0] = 0;
        windows[1] = draw(random, 1, kBlockSize);
        const std::size_t layer_floats =
            step.lengths.size() * 2 * heads.kv_heads * kBlockSize * heads.head_dim;
        pages.reset(new float[layers.size() * layer_floats]());
        attention = {.plans = {step.plans(heads, pool.num_threads(), windows[0]),
                               step.plans(heads, pool.num_threads(), windows[1])},
                     .slots = step.slots,
                     .pages = pages.get(),
                     .layer_bytes = static_cast<std::int64_t>(layer_floats * sizeof(float)),
                     .page_type = DType::kFloat32,
                     .num_blocks = static_cast<std::int64_t>(step.lengths.size()),
                     .scale = kScale,
                     .soft_cap = kSoftCap};
    }
    Stack(const Stack&) = delete;

    Array draw_residual() const { return {c.random, std::size_t(step.tokens) * c.hidden}; }
    void run(const Workers& workers, float* residual, WeightReader* reader = nullptr) const {
        run_layers(workers, stack, rotations, attention, step.tokens, residual, reader);
    }
};

void run_stack(Random& random, Pool& pool, Isa isa) {
    const Stack s(random, pool, draw(random, 0, 3) == 0);
    const Workers workers{pool, isa};
    const Array residual = s.draw_residual();
    std::vector<float> expected(residual.get(), residual.get() + s.step.tokens * s.c.hidden);
    StepAttention refused = s.attention;
    refused.num_blocks -= 1;  // the last row's block, and its slots
    bool threw = false;
    try {
        run_layers(workers, s.stack, s.rotations, refused, s.step.tokens, residual.get());
    } catch (const std::invalid_argument&) {
        threw = true;
    }
    CHECK(threw);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(residual.get()[i] == expected[i]);

    s.run(workers, residual.get());
    for (const auto& layer : s.stack)
        run_plainly(workers, layer.weights, s.rotations[layer.rotation], s.windows[layer.plans],
                    s.step, expected.data());
    check_close({residual.get(), expected.size()}, Vector(expected.begin(), expected.end()));
}

// A stack's matrices in a file, from which its layers are read into one slot.
class ReadStack {
  public:
    explicit ReadStack(Stack& s) {
        std::vector<LayerFiles> files;
        for (std::size_t i = 0; i < s.stack.size(); ++i) sizes_.push_back(size_of(s, i));
        slot_.resize(*std::ranges::max_element(sizes_));
        std::string content;
        for (std::size_t i = 0; i < s.stack.size(); ++i) {
            s.stack[i].read = static_cast<int>(i);
            std::string own;
            for (LinearWeight* weight : matrices(s, i)) {
                const char* data = static_cast<const char*>(weight->data);
                weight->data = slot_.data() + own.size();
                own.append(data, bytes_of(*weight));
            }
            files.push_back({{{0, std::ssize(content), std::ssize(own), 0}}, 0});
            content += own;
        }
        const int descriptor = mkstemp(path_.data());
        CHECK(descriptor >= 0);
        CHECK(write(descriptor, content.data(), content.size()) == std::ssize(content));
        std::vector<std::vector<WeightFile>> opened(1);
        opened[0].emplace_back(descriptor, path_);
        close(descriptor);
        unlink(path_.c_str());
        reader_ = std::make_unique<WeightReader>(
            std::move(opened), files, std::vector<std::byte*>{slot_.data()}, std::ssize(slot_),
            ReaderOptions{.num_threads = 1, .piece_bytes = 4096, .alignment = 1});
    }
    WeightReader& reader() { return *reader_; }

  private:
    static std::size_t bytes_of(const LinearWeight& weight) {
        return std::size_t(weight.outputs) * weight.inputs * sizeof(float);
    }
    static std::vector<LinearWeight*> matrices(Stack& s, std::size_t layer) {
        LayerWeights& weights = s.stack[layer].weights;
        std::vector<LinearWeight*> all{&weights.qkv, &weights.output};
        if (!weights.experts) {
            all.insert(all.end(), {&weights.up, &weights.down});
            return all;
        }
        Layer& own = *s.layers[layer];
        all.push_back(&own.experts.router);
        for (ExpertWeights& expert : own.expert_weights)
            all.insert(all.end(), {&expert.up, &expert.down});
        return all;
    }
    static std::size_t size_of(Stack& s, std::size_t layer) {
        std::size_t size = 0;
        for (const LinearWeight* weight : matrices(s, layer)) size += bytes_of(*weight);
        return size;
    }

    std::vector<std::size_t> sizes_;
    std::vector<std::byte> slot_;
    std::string path_ = "layer_stack_test_XXXXXX";
    std::unique_ptr<WeightReader> reader_;
};

void layers_that_are_read_give_the_same(Random& random, Pool& pool, Isa isa, bool experts) {
    Stack s(random, pool, experts);
    const Array residual = s.draw_residual();
    const std::size_t size = residual.wide.size();
    const std::vector<float> before(residual.get(), residual.get() + size);
    std::vector<float> found = before;
    s.run({pool, isa}, residual.get());
    ReadStack read(s);
    for (int round = 0; round < 2; ++round) {
        found = before;
        s.run({pool, isa}, found.data(), &read.reader());
        CHECK(std::equal(found.begin(), found.end(), residual.get()));
    }
}

// Wherever memory runs out, the layer in use is given back, and a later step works.
void without_memory_no_layer_stays_in_use(Random& random, Isa isa) {
    Stack s(random, *std::make_unique<Pool>(PoolOptions{.num_threads = 1}), true);
    ReadStack read(s);
    WeightReader& reader = read.reader();
    const Array residual = s.draw_residual();
    for (int layer = 0; layer < reader.num_layers(); ++layer) {  // its thread has what it needs
        reader.acquire(layer);
        reader.release();
    }
    int failures = 0, next = 0;
    for (bool worked = false; !worked;) {
        Pool pool({.num_threads = 1});                     // whose store is empty
        for (; next % reader.num_layers() != 0; ++next) {  // to the circle's beginning
            reader.acquire(next % reader.num_layers());
            reader.release();
        }
        allocations = 0;
        failing = failures;
        try {
            s.run({pool, isa}, residual.get(), &reader);
            worked = true;
        } catch (const std::bad_alloc&) {
            ++failures;
        }
        failing = kNever;
        for (next = 0; !worked && next < reader.num_layers(); ++next) {
            try {
                reader.acquire(next);
                reader.release();
                ++next;
                break;
            } catch (const std::logic_error& error) {  // not the next one
                CHECK(!std::string(error.what()).starts_with("every slot"));
            }
        }
    }
    CHECK(failures > 5);
}

// Steps of one thread after the first allocate nothing.
void later_steps_allocate_nothing(Random& random, Isa isa, bool experts, bool reads) {
    Pool pool({.num_threads = 1});
    Stack s(random, pool, experts);
    std::unique_ptr<ReadStack> read;
    if (reads) read = std::make_unique<ReadStack>(s);
    const Array residual = s.draw_residual();
    std::vector<float> given(residual.wide.size());
    const auto step = [&] {  // the same one each time
        std::copy_n(residual.get(), given.size(), given.begin());
        s.run({pool, isa}, given.data(), reads ? &read->reader() : nullptr);
    };
    for (int warm = 0; warm < 10; ++warm) step();
    const long before = allocations;
    for (int i = 0; i < 3; ++i) step();
    CHECK(allocations == before);
}

}  // namespace

int main() {
    Pool pool({.num_threads = 2});
    for (Isa isa : supported_isas()) {
        Random random(6);
        for (int i = 0; i < 40; ++i) run_stack(random, pool, isa);
        for (int i = 0; i < 8; ++i) {
            layers_that_are_read_give_the_same(random, pool, isa, i % 2);
            later_steps_allocate_nothing(random, isa, i % 2, i % 4 / 2);
        }
        without_memory_no_layer_stays_in_use(random, isa);
    }
    return 0;
}

// Random batches on memory of exactly the size that they may touch, against a plain computation in
// double; built with sanitizers, so that a read or write outside is found. Also random arrays that
// make no sense: they must be refused, or work.
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "append.hpp"
#include "check.hpp"
#include "convert.hpp"
#include "merge.hpp"
#include "plain_pages.hpp"
#include "pool.hpp"
#include "prefill.hpp"
#include "prefill_plan.hpp"
#include "sinks.hpp"

namespace {

using namespace tandem;

constexpr auto kForever = std::chrono::steady_clock::time_point::max();
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

using Random = std::mt19937;

int draw(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

// One batch and its memory. Every element of the pages that is not a key or value is NaN.
struct Case {
    AttentionShape shape;
    DType type;
    int window;
    std::vector<std::int32_t> query_start{0}, positions, table;
    std::vector<int> contexts;
    std::vector<float> keys, values;  // [row's first key + key, kv_heads, head_dim]
    std::vector<std::int64_t> first_key;
    std::vector<float> queries;
    std::unique_ptr<char[]> pages;
    std::int64_t num_blocks;

    int rows() const { return static_cast<int>(contexts.size()); }
    int width() const { return static_cast<int>(table.size()) / rows(); }
    QuantizedPage quantized() const {
        return {shape.code_bits, shape.kv_heads, shape.block_size, shape.head_dim};
    }
    std::int64_t page_bytes() const {
        return shape.code_bits ? quantized().page_bytes()
                               : shape.page_elements() * element_bytes(type);
    }
    std::int64_t key_elements() const { return std::int64_t{shape.kv_heads} * shape.head_dim; }
    AttentionArrays arrays() const {
        return {query_start, positions, table, {}, {}, false, window};
    }
};

float rounded(float value, DType type) {
    if (type == DType::kFloat16) return from_half(to_half(value));
    if (type == DType::kFloat8) return from_float8(to_float8(value));
    return type == DType::kBFloat16 ? from_bfloat(to_bfloat(value)) : value;
}

void fill_with_nan(Case& c) {
    const std::int64_t count = c.num_blocks * c.shape.page_elements();
    c.pages.reset(new char[c.num_blocks * c.page_bytes()]);
    if (c.shape.code_bits) {  // scales and minima of NaN
        std::memset(c.pages.get(), 0xff, std::size_t(c.num_blocks * c.page_bytes()));
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const std::uint16_t narrow = c.type == DType::kFloat16 ? to_half(nan) : to_bfloat(nan);
        if (c.type == DType::kFloat32)
            std::memcpy(c.pages.get() + i * 4, &nan, 4);
        else if (c.type == DType::kFloat8)
            c.pages[std::size_t(i)] = static_cast<char>(to_float8(nan));
        else
            std::memcpy(c.pages.get() + i * 2, &narrow, 2);
    }
}

// Puts what quantized pages hold in the place of what was appended, once it is near enough.
void take_held(Case& c, const std::vector<std::int64_t>& slots) {
    const QuantizedPage layout = c.quantized();
    const int heads = c.shape.kv_heads, dim = c.shape.head_dim;
    for (std::size_t t = 0; t < slots.size(); ++t)
        for (int i = 0; i < 2 * c.key_elements(); ++i) {
            auto& array = i < c.key_elements() ? c.keys : c.values;
            float& x = array[t * c.key_elements() + i % c.key_elements()];
            const char* page = c.pages.get() + slots[t] / c.shape.block_size * layout.page_bytes();
            const float held =
                read_element(layout, page, i / dim, int(slots[t] % c.shape.block_size), i % dim);
            const float step = 2 * 6.0f / (layout.bits == 8 ? 255 : 15);
            CHECK(i / dim < 2 * heads && std::abs(held - x) < step / 2 + 0.01f);
            x = held;
        }
}

// Shuffled pages with random keys and values of `c.contexts`, and queries at `c.positions`.
void fill_case(Random& random, Pool& pool, Case& c, int width) {
    c.num_blocks = c.rows() * width;
    std::vector<std::int32_t> ids(c.num_blocks);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random);
    c.table = ids;
    fill_with_nan(c);
    std::normal_distribution<float> normal;
    std::vector<std::int64_t> slots;
    for (int r = 0; r < c.rows(); ++r) {
        c.first_key.push_back(static_cast<std::int64_t>(slots.size()));
        for (int k = 0; k < c.contexts[r]; ++k)
            slots.push_back(std::int64_t{c.table[r * width + k / c.shape.block_size]} *
                                c.shape.block_size +
                            k % c.shape.block_size);
    }
    for (auto* array : {&c.keys, &c.values}) {
        array->resize(slots.size() * c.key_elements());
        for (float& x : *array) x = rounded(normal(random), c.type);
    }
    c.queries.resize(c.positions.size() * c.shape.heads * c.shape.head_dim);
    for (float& x : c.queries) x = normal(random);
    AppendJob append({c.keys.data(), c.values.data(), c.key_elements(), c.key_elements(),
                      DType::kFloat32, slots, c.pages.get(), c.type, c.num_blocks, c.shape.kv_heads,
                      c.shape.block_size, c.shape.head_dim},
                     pool.num_threads(), pool.buffers());
    pool.submit(append);
    CHECK(pool.wait(append, kForever));
    if (c.shape.code_bits) take_held(c, slots);
}

Case make_case(Random& random, Pool& pool, int most_tokens) {
    Case c{};
    const int group = draw(random, 1, 9);
    c.shape.kv_heads = draw(random, 1, 3);
    c.shape.heads = c.shape.kv_heads * group;
    c.shape.block_size = draw(random, 1, 40);
    c.shape.head_dim = 4 * draw(random, 1, 34);
    c.type = static_cast<DType>(draw(random, 0, 5));
    c.shape.code_bits = is_quantized(c.type) ? (c.type == DType::kInt8 ? 8 : 4) : 0;
    c.window = draw(random, 0, 1) * draw(random, 1, 150);
    const int rows = draw(random, 1, 4);
    int width = 1;
    for (int r = 0; r < rows; ++r) {
        c.contexts.push_back(draw(random, 1, 300));
        const int tokens = std::min(c.contexts.back(), draw(random, 1, most_tokens));
        for (int t = 0; t < tokens; ++t) c.positions.push_back(c.contexts.back() - tokens + t);
        c.query_start.push_back(static_cast<std::int32_t>(c.positions.size()));
        width = std::max(width, (c.contexts.back() - 1) / c.shape.block_size + 1);
    }
    fill_case(random, pool, c, width);
    return c;
}

// Attention of one token's head over its row's keys.
double attend(const Case& c, int row, int token, int head, double scale, double cap, double sink,
              std::vector<double>& out) {
    const int dim = c.shape.head_dim;
    const int kv_head = head / c.shape.group();
    const float* query = c.queries.data() + (std::int64_t{token} * c.shape.heads + head) * dim;
    const int last = c.positions[token];
    const int first = c.window ? std::max(0, last + 1 - c.window) : 0;
    std::vector<double> scores;
    for (int key = first; key <= last; ++key) {
        const float* k = c.keys.data() + (c.first_key[row] + key) * c.key_elements() +
                         std::int64_t{kv_head} * dim;
        double score = 0;
        for (int i = 0; i < dim; ++i) score += double{query[i]} * k[i];
        score *= scale;
        scores.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
    }
    const double max = std::max(sink, *std::max_element(scores.begin(), scores.end()));
    double sum = std::exp(sink - max);
    out.assign(dim, 0.0);
    for (int key = first; key <= last; ++key) {
        const double weight = std::exp(scores[key - first] - max);
        const float* v = c.values.data() + (c.first_key[row] + key) * c.key_elements() +
                         std::int64_t{kv_head} * dim;
        sum += weight;
        for (int i = 0; i < dim; ++i) out[i] += weight * v[i];
    }
    for (double& x : out) x /= sum;
    return max + std::log(sum);
}

// `sinks`: empty, or one per head.
void check_results(const Case& c, const std::vector<float>& out, const std::vector<float>& lse,
                   double scale, double cap, const std::vector<float>& sinks) {
    std::vector<double> expected;
    for (int row = 0; row < c.rows(); ++row)
        for (int token = c.query_start[row]; token < c.query_start[row + 1]; ++token)
            for (int head = 0; head < c.shape.heads; ++head) {
                const double sink = sinks.empty() ? kMinusInfinity : sinks[head];
                const double log = attend(c, row, token, head, scale, cap, sink, expected);
                const std::int64_t at = std::int64_t{token} * c.shape.heads + head;
                CHECK(std::abs(lse[at] - log) < 3e-5 * std::max(1.0, std::abs(log)));
                for (int i = 0; i < c.shape.head_dim; ++i)
                    CHECK(std::abs(out[at * c.shape.head_dim + i] - expected[i]) < 3e-5);
            }
}

template <class Job, class Plan>
void run_case(Random& random, Pool& pool, Isa isa, int most_tokens) {
    const Case c = make_case(random, pool, most_tokens);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.shape.head_dim));
    const float cap = draw(random, 0, 1) ? 5.0f : 0.0f;
    std::vector<float> sinks(draw(random, 0, 1) * c.shape.heads);
    for (float& sink : sinks) sink = std::normal_distribution<float>(0.0f, 4.0f)(random);
    const bool at_once = draw(random, 0, 1);
    auto plan = std::make_shared<Plan>(c.shape, c.arrays(), draw(random, 1, 5));
    std::vector<float> out(c.queries.size(), std::nanf("")), lse(out.size() / c.shape.head_dim);
    Job job(
        plan,
        {c.queries.data(), c.shape.heads * c.shape.head_dim, DType::kFloat32, c.pages.get(), c.type,
         c.num_blocks, out.data(), lse.data(), sinks.empty() || !at_once ? nullptr : sinks.data()},
        scale, cap, isa, pool.buffers());
    pool.submit(job);
    CHECK(pool.wait(job, kForever));
    SinkJob last(
        {out.data(), lse.data(), sinks.data(), plan->num_tokens, c.shape.heads, c.shape.head_dim},
        pool.num_threads());
    if (!sinks.empty() && !at_once) {
        pool.submit(last);
        CHECK(pool.wait(last, kForever));
    }
    check_results(c, out, lse, scale, cap, sinks);
}

// A query that is no number gives none, whatever else is in its row, and spoils no other.
template <class Job, class Plan>
void not_a_number_shows(Random& random, Pool& pool, Isa isa, int most_tokens) {
    Case c = make_case(random, pool, most_tokens);
    const int tokens = static_cast<int>(c.positions.size()), dim = c.shape.head_dim;
    const int damaged = draw(random, 0, tokens * c.shape.heads - 1);
    c.queries[std::size_t(damaged) * dim + draw(random, 0, dim - 1)] = std::nanf("");
    const float sink = 1.0f;
    const std::vector<float> sinks(c.shape.heads, sink);
    const bool sinking = draw(random, 0, 1);
    auto plan = std::make_shared<Plan>(c.shape, c.arrays(), draw(random, 1, 5));
    std::vector<float> out(c.queries.size()), lse(out.size() / dim);
    Job job(plan,
            {c.queries.data(), c.shape.heads * dim, DType::kFloat32, c.pages.get(), c.type,
             c.num_blocks, out.data(), lse.data(), sinking ? sinks.data() : nullptr},
            1.0f, draw(random, 0, 1) ? 5.0f : 0.0f, isa, pool.buffers());
    pool.run(job);
    for (int i = 0; i < tokens * c.shape.heads; ++i) {
        CHECK(std::isnan(lse[i]) == (i == damaged));
        for (int j = 0; j < dim; ++j)
            CHECK(std::isnan(out[std::size_t(i) * dim + j]) == (i == damaged));
    }
}

// What became of damaged arrays.
struct Fates {
    int worked = 0, refused = 0;
};

// Arrays whose entries are damaged at random are refused, or read nothing outside the pages.
template <class Job, class Plan>
void run_damaged_case(Random& random, Pool& pool, Isa isa, int most_tokens, Fates& fates) {
    Case c = make_case(random, pool, most_tokens);
    for (auto* array : {&c.table, &c.positions, &c.query_start})
        if (draw(random, 0, 1)) {
            const int at = draw(random, 0, static_cast<int>(array->size()) - 1);
            constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
            const std::int32_t odd[] = {-1,    0,      draw(random, -3, 400),
                                        kMost, -kMost, static_cast<std::int32_t>(c.num_blocks)};
            (*array)[at] = odd[draw(random, 0, 5)];
        }
    try {
        auto plan = std::make_shared<Plan>(c.shape, c.arrays(), 3);
        if (plan->num_queries_needed >
            static_cast<std::int64_t>(c.queries.size()) / (c.shape.heads * c.shape.head_dim))
            return static_cast<void>(++fates.refused);  // the binding would
        std::vector<float> out(c.queries.size()), lse(out.size() / c.shape.head_dim);
        Job job(plan,
                {c.queries.data(), c.shape.heads * c.shape.head_dim, DType::kFloat32, c.pages.get(),
                 c.type, c.num_blocks, out.data(), lse.data()},
                1.0f, 0.0f, isa, pool.buffers());
        pool.submit(job);
        CHECK(pool.wait(job, kForever));
        ++fates.worked;
    } catch (const std::invalid_argument&) {
        ++fates.refused;
    }
}

// One tile of queries over so many keys that several parts share it.
void long_prefix_is_cut_and_merged(Random& random, Pool& pool, Isa isa) {
    const int heads = 8, dim = 64, keys = 3000 + draw(random, 0, 200), tokens = 24;
    Case c{};
    c.shape = {heads, 1, 64, dim};
    c.type = DType::kFloat32;
    c.contexts = {keys};
    for (int t = 0; t < tokens; ++t) c.positions.push_back(keys - tokens + t);
    c.query_start.push_back(tokens);
    fill_case(random, pool, c, (keys - 1) / c.shape.block_size + 1);
    auto plan = std::make_shared<PrefillPlan>(c.shape, c.arrays(), 3);
    CHECK(!plan->merges.empty());
    std::vector<float> out(c.queries.size(), std::nanf("")), lse(out.size() / dim);
    PrefillJob job(plan,
                   {c.queries.data(), heads * dim, DType::kFloat32, c.pages.get(), c.type,
                    c.num_blocks, out.data(), lse.data()},
                   0.125f, 0.0f, isa, pool.buffers());
    pool.submit(job);
    CHECK(pool.wait(job, kForever));
    check_results(c, out, lse, 0.125, 0.0, {});
}

// An id that is changed after the job was made is not followed.
void appends_to_the_slots_that_were_checked(Pool& pool) {
    const std::vector<float> keys(8, 1.0f), values(8, 2.0f);
    std::vector<float> pages(2 * 2 * 4 * 8);
    std::vector<std::int64_t> slots{5};
    AppendJob job({keys.data(), values.data(), 8, 8, DType::kFloat32, slots, pages.data(),
                   DType::kFloat32, 2, 1, 4, 8},
                  pool.num_threads(), pool.buffers());
    slots[0] = std::int64_t{1} << 40;
    pool.run(job);
    for (std::size_t i = 0; i < pages.size(); ++i)
        CHECK(pages[i] == (i / 8 == 8 + 1 ? 1.0f : i / 8 == 8 + 4 + 1 ? 2.0f : 0.0f));
}

void unseen_keys_merge_to_nothing(Pool& pool) {
    const float lse_a[] = {1.0f, -INFINITY, -INFINITY}, lse_b[] = {-INFINITY, 2.0f, -INFINITY};
    const float out_a[] = {3, 4, 0, 0, 0, 0}, out_b[] = {0, 0, 5, 6, 0, 0};
    float out[6], lse[3];
    MergeJob job({out_a, lse_a, out_b, lse_b, out, lse, 3, 2}, pool.num_threads());
    pool.submit(job);
    CHECK(pool.wait(job, kForever));
    CHECK(std::equal(out, out + 6, std::vector<float>{3, 4, 5, 6, 0, 0}.begin()));
    CHECK(lse[0] == 1 && lse[1] == 2 && lse[2] == kMinusInfinity);
}

}  // namespace

int main() {
    for (const Isa isa : supported_isas()) {
        Random random(7);
        Pool pool({3, false, std::chrono::microseconds(10)});
        unseen_keys_merge_to_nothing(pool);
        appends_to_the_slots_that_were_checked(pool);
        for (int i = 0; i < 60; ++i) {
            run_case<AttentionJob, AttentionPlan>(random, pool, isa, kMaxQueryTokens);
            run_case<PrefillJob, PrefillPlan>(random, pool, isa, 80);
            not_a_number_shows<AttentionJob, AttentionPlan>(random, pool, isa, kMaxQueryTokens);
            not_a_number_shows<PrefillJob, PrefillPlan>(random, pool, isa, 20);
        }
        Fates decode, prefill;
        for (int i = 0; i < 200; ++i) {
            run_damaged_case<AttentionJob, AttentionPlan>(random, pool, isa, kMaxQueryTokens,
                                                          decode);
            run_damaged_case<PrefillJob, PrefillPlan>(random, pool, isa, 40, prefill);
        }
        for (const Fates& fates : {decode, prefill}) CHECK(fates.worked > 30 && fates.refused > 30);
        for (int i = 0; i < 3; ++i) long_prefix_is_cut_and_merged(random, pool, isa);
        std::printf("%s ok\n", isa_name(isa));
    }
}

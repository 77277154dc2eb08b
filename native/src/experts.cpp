#include "experts.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "linear.hpp"
#include "linear_group.hpp"
#include "rows_job.hpp"
#include "scratch.hpp"

namespace tandem {
namespace {

// Rows that are worked on at a time, if there are fewer tokens: so few that their memory is small,
// and so many that the experts of a few tokens are one job for all threads.
constexpr std::int64_t kFewRows = 64;

// A run of experts, and their rows.
struct Wave {
    int begin, end;        // experts
    int first_row, count;  // of them
    const float* in;       // [count, hidden]
    float *inner, *out;    // [count, intermediate], [count, hidden]
};

void score(const Workers& workers, const LinearWeight& router, std::int64_t tokens, const float* x,
           float* scores) {
    const LinearCall call{.x = x,
                          .x_stride = router.inputs,
                          .rows = static_cast<int>(tokens),
                          .y = scores,
                          .y_stride = router.outputs,
                          .end = LinearEnd::kStore,
                          .activation = Activation::kNone};
    LinearJob job(router, call, workers.isa, workers.pool.num_threads(), workers.pool.buffers());
    workers.pool.run(job);
}

// Which of an expert's two maps, and what comes after it.
struct Half {
    LinearWeight ExpertWeights::* weight;
    const float* from;
    float* to;
    LinearEnd end;
    Activation activation;
    bool rounds_x;
};

// One map of all experts of a wave.
void multiply(const Workers& workers, const Experts& experts, const Routing& routing,
              const Wave& wave, const Half& half) {
    Pool& pool = workers.pool;
    LinearMaps maps(pool.buffers(), static_cast<std::size_t>(wave.end - wave.begin));
    for (int expert = wave.begin; expert < wave.end; ++expert) {
        const std::int64_t row = routing.first[expert] - wave.first_row;
        const int rows = routing.first[expert + 1] - routing.first[expert];
        if (rows == 0) continue;
        const LinearWeight& weight = experts.weights[expert].*half.weight;
        const int columns = half.end == LinearEnd::kGated ? weight.outputs / 2 : weight.outputs;
        const LinearCall call{.x = half.from + row * weight.inputs,
                              .x_stride = weight.inputs,
                              .rows = rows,
                              .y = half.to + row * columns,
                              .y_stride = columns,
                              .end = half.end,
                              .activation = half.activation,
                              .rounds_x = half.rounds_x};
        maps.add(weight, call, workers.isa, pool.num_threads());
    }
    LinearGroupJob job(maps);
    pool.run(job);
}

void gather(const Workers& workers, const Routing& routing, const Wave& wave, int hidden,
            const float* x, float* in) {
    RowsJob job(wave.count, hidden, workers.pool.num_threads(), [&](std::int64_t row) {
        const std::int64_t token = routing.tokens[wave.first_row + row];
        std::memcpy(in + row * hidden, x + token * hidden, sizeof(float) * hidden);
    });
    workers.pool.run(job);
}

// Adds the wave's rows to the residual of their tokens.
void scatter(const Workers& workers, const Experts& experts, const Routing& routing,
             const Wave& wave, std::int64_t tokens, float* residual) {
    const int hidden = experts.hidden, per_token = experts.per_token;
    RowsJob job(tokens, hidden, workers.pool.num_threads(), [&](std::int64_t token) {
        for (std::int64_t i = token * per_token; i < (token + 1) * per_token; ++i) {
            const std::int64_t row = routing.rows[i] - wave.first_row;
            if (row < 0 || row >= wave.count) continue;
            const float* from = wave.out + row * hidden;
            float* to = residual + token * hidden;
            for (int j = 0; j < hidden; ++j) to[j] += routing.shares[i] * from[j];
        }
    });
    workers.pool.run(job);
}

Routing route_by_scores(const Workers& workers, const Experts& experts, std::int64_t tokens,
                        const float* x) {
    const Scratch scores(workers.pool.buffers(), tokens, static_cast<int>(experts.weights.size()));
    score(workers, experts.router, tokens, x, scores.data());
    return route(workers, experts.rule(), tokens, scores.data());
}

Routing route_as_given(const Workers& workers, const Experts& experts, std::int64_t tokens,
                       const Choices& given) {
    const Borrowed<bool> here(workers.pool.buffers(), experts.weights.size());
    std::ranges::transform(experts.weights, here.data(), &ExpertWeights::here);
    return route_as_given(workers, experts.rule(), tokens, given.experts, given.shares, here.all());
}

void count(const Experts& experts, const Routing& routing) {
    if (!experts.hits) return;
    for (std::size_t expert = 0; expert < experts.weights.size(); ++expert)
        std::atomic_ref(experts.hits[expert])
            .fetch_add(routing.first[expert + 1] - routing.first[expert],
                       std::memory_order_relaxed);
}

// The most experts from `begin` on whose rows fit; at least one.
int wave_end(const Routing& routing, int begin, int experts, std::int64_t rows) {
    int end = begin + 1;
    while (end < experts && routing.first[end + 1] - routing.first[begin] <= rows) ++end;
    return end;
}

}  // namespace

void run_experts(const Workers& workers, const Experts& experts, Activation activation,
                 bool rounds_x, std::int64_t tokens, const float* x, float* residual,
                 const Choices& given) {
    const int total = static_cast<int>(experts.weights.size()), hidden = experts.hidden;
    const Routing routing = given.experts ? route_as_given(workers, experts, tokens, given)
                                          : route_by_scores(workers, experts, tokens, x);
    if (!given.experts) count(experts, routing);
    const std::int64_t rows = std::max(tokens, std::min(kFewRows, tokens * experts.per_token));
    BufferStore& buffers = workers.pool.buffers();
    const Scratch in(buffers, rows, hidden), inner(buffers, rows, experts.intermediate);
    const Scratch out(buffers, rows, hidden);
    for (int begin = 0, end = 0; begin < total; begin = end) {
        end = wave_end(routing, begin, total, rows);
        const int first = routing.first[begin];
        const Wave wave{begin,     end,          first,     routing.first[end] - first,
                        in.data(), inner.data(), out.data()};
        if (wave.count == 0) continue;
        gather(workers, routing, wave, hidden, x, in.data());
        multiply(
            workers, experts, routing, wave,
            {&ExpertWeights::up, wave.in, wave.inner, LinearEnd::kGated, activation, rounds_x});
        multiply(workers, experts, routing, wave,
                 {&ExpertWeights::down, wave.inner, wave.out, LinearEnd::kStore, Activation::kNone,
                  rounds_x});
        scatter(workers, experts, routing, wave, tokens, residual);
    }
}

ExpertScratch expert_scratch(const Experts& experts) {
    const std::int64_t row =
        (2 * std::int64_t{experts.hidden} + experts.intermediate) * std::int64_t{sizeof(float)};
    const std::int64_t routing = experts.per_token * std::int64_t{4 * sizeof(int)};
    const std::int64_t scores = std::int64_t{experts.router.outputs} * sizeof(float);
    return {.token_bytes = routing + std::max(row, scores), .bytes = kFewRows * row};
}

}  // namespace tandem

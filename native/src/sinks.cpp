#include "sinks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr std::int64_t kMinPartElements = 1 << 16;

std::int64_t count_parts(const SinkMemory& m, int num_threads) {
    const std::int64_t elements = m.tokens * m.heads * m.head_dim;
    return std::clamp<std::int64_t>(elements / kMinPartElements, 1, num_threads);
}

// The weights relative to exp(lse) shrink by exp(lse - log(exp(lse) + exp(sink))).
void apply(float* out, float* lse, float sink, std::int64_t head_dim) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    const float high = std::max(*lse, sink), low = std::min(*lse, sink);
    const float joint = low == kMinusInfinity ? high : high + std::log1p(std::exp(low - high));
    const float factor = *lse == kMinusInfinity ? 0.0f : std::exp(*lse - joint);
    for (std::int64_t c = 0; c < head_dim; ++c) out[c] *= factor;
    *lse = joint;
}

}  // namespace

SinkJob::SinkJob(const SinkMemory& memory, int num_threads)
    : Job(static_cast<int>(count_parts(memory, num_threads))),
      memory_(memory),
      parts_(count_parts(memory, num_threads)) {}

void SinkJob::run_part(int part) {
    const SinkMemory& m = memory_;
    const std::int64_t rows = m.tokens * m.heads;
    for (std::int64_t row = rows * part / parts_; row < rows * (part + 1) / parts_; ++row)
        apply(m.out + row * m.head_dim, m.lse + row, m.sinks[row % m.heads], m.head_dim);
}

}  // namespace tandem

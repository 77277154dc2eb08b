#include "merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr std::int64_t kMinPartElements = 1 << 16;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::int64_t count_parts(const MergeMemory& m, int num_threads) {
    return std::clamp<std::int64_t>(m.rows * m.head_dim / kMinPartElements, 1, num_threads);
}

}  // namespace

MergeJob::MergeJob(const MergeMemory& memory, int num_threads)
    : Job(static_cast<int>(count_parts(memory, num_threads))),
      memory_(memory),
      parts_(count_parts(memory, num_threads)) {}

void MergeJob::run_part(int part) {
    for (std::int64_t row = memory_.rows * part / parts_; row < memory_.rows * (part + 1) / parts_;
         ++row)
        merge(row);
}

void MergeJob::merge(std::int64_t row) const {
    const MergeMemory& m = memory_;
    const float a = m.lse_a[row], b = m.lse_b[row];
    const float* out_a = m.out_a + row * m.head_dim;
    const float* out_b = m.out_b + row * m.head_dim;
    float* out = m.out + row * m.head_dim;
    if (a == kMinusInfinity && b == kMinusInfinity) {
        std::fill(out, out + m.head_dim, 0.0f);
        m.lse[row] = kMinusInfinity;
        return;
    }
    if (a == kMinusInfinity || b == kMinusInfinity) {
        const float* seen = a == kMinusInfinity ? out_b : out_a;
        if (seen != out) std::copy(seen, seen + m.head_dim, out);
        m.lse[row] = std::max(a, b);
        return;
    }
    const float lse = std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
    const float weight_a = std::exp(a - lse), weight_b = std::exp(b - lse);
    for (std::int64_t c = 0; c < m.head_dim; ++c)
        out[c] = weight_a * out_a[c] + weight_b * out_b[c];
    m.lse[row] = lse;
}

}  // namespace tandem

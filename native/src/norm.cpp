#include "norm.hpp"

#include <cmath>

#include "divide.hpp"

namespace tandem {
namespace {

constexpr int kLanes = 16;  // sums that the compiler may keep in vectors

// Sum of (x - shift)^2.
float sum_squares(const float* x, int size, float shift) {
    float sums[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= size; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane)
            sums[lane] += (x[i + lane] - shift) * (x[i + lane] - shift);
    for (; i < size; ++i) sums[i % kLanes] += (x[i] - shift) * (x[i] - shift);
    float total = 0.0f;
    for (float sum : sums) total += sum;
    return total;
}

float mean_of(const float* x, int size) {
    float sums[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= size; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane];
    for (; i < size; ++i) sums[i % kLanes] += x[i];
    float total = 0.0f;
    for (float sum : sums) total += sum;
    return total / static_cast<float>(size);
}

struct Moments {
    float mean;   // 0 of a root-mean-square norm
    float scale;  // 1 / deviation
};

Moments moments_of(const Norm& norm, const float* x) {
    const float mean = norm.bias ? mean_of(x, norm.size) : 0.0f;
    const float square = sum_squares(x, norm.size, mean) / static_cast<float>(norm.size);
    return {mean, 1.0f / std::sqrt(square + norm.epsilon)};
}

void add_normalized(const Norm& norm, const float* x, float* y) {
    const auto [mean, scale] = moments_of(norm, x);
    if (!norm.bias) {
        for (int i = 0; i < norm.size; ++i) y[i] += x[i] * scale * norm.weight[i];
        return;
    }
    for (int i = 0; i < norm.size; ++i)
        y[i] += (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
}

}  // namespace

void normalize(const Norm& norm, const float* x, float* y) {
    const auto [mean, scale] = moments_of(norm, x);
    if (!norm.bias) {
        for (int i = 0; i < norm.size; ++i) y[i] = x[i] * scale * norm.weight[i];
        return;
    }
    for (int i = 0; i < norm.size; ++i)
        y[i] = (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
}

NormJob::NormJob(const Norm& norm, const float* x, float* y, std::int64_t rows, int num_threads,
                 NormEnd end)
    : Job(count_parts(rows, norm.size, num_threads)),
      norm_(norm),
      x_(x),
      y_(y),
      rows_(rows),
      end_(end) {}

void NormJob::run_part(int part) {
    const auto apply = end_ == NormEnd::kAdd ? &add_normalized : &normalize;
    const Run run = run_of(rows_, part, num_parts());
    for (std::int64_t row = run.begin; row < run.end; ++row)
        apply(norm_, x_ + row * norm_.size, y_ + row * norm_.size);
}

}  // namespace tandem

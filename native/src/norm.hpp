// Root-mean-square and layer norms over the rows of a matrix, in float32.
#pragma once

#include <cstdint>

#include "job.hpp"

namespace tandem {

// y = x / rms(x) * weight, or (x - mean(x)) / deviation(x) * weight + bias if there is a bias.
struct Norm {
    const float* weight = nullptr;  // [size]
    const float* bias = nullptr;    // [size]; null: root mean square
    float epsilon = 0.0f;
    int size = 0;
};

// `x` and `y` may be the same memory.
void normalize(const Norm& norm, const float* x, float* y);

enum class NormEnd : std::uint8_t {
    kStore,
    kAdd,  // y += norm(x); y is other memory than x
};

class NormJob final : public Job {
  public:
    // x, y: [rows, norm.size], contiguous; must outlive the job.
    NormJob(const Norm& norm, const float* x, float* y, std::int64_t rows, int num_threads,
            NormEnd end = NormEnd::kStore);

  private:
    void run_part(int part) override;

    Norm norm_;
    const float* x_;
    float* y_;
    std::int64_t rows_;
    NormEnd end_;
};

}  // namespace tandem

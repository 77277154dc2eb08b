// Weights of any type to float32, as a job for the pool: of which no step has need, but probes do.
#pragma once

#include "isa.hpp"
#include "job.hpp"
#include "linear.hpp"

namespace tandem {

// (q - z) s of every element, rounded once.
class DequantizeJob final : public Job {
  public:
    // `out` [outputs, inputs]. Throws std::invalid_argument for a weight that makes no sense.
    DequantizeJob(const LinearWeight& weight, float* out, Isa isa, int num_threads);

  private:
    void run_part(int part) override;

    LinearWeight weight_;
    float* out_;
    const LinearKernels& kernels_;
};

}  // namespace tandem

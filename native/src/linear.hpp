// A linear map as a job for the pool.
#pragma once

#include <atomic>
#include <cstdint>

#include "isa.hpp"
#include "job.hpp"
#include "linear_integer.hpp"
#include "linear_kernel.hpp"
#include "linear_weight.hpp"
#include "scratch.hpp"

namespace tandem {

// y = x W^T + bias, and what comes after. The memory must outlive the job; y must not overlap x.
struct LinearCall {
    const float* x;  // [rows, inputs]
    std::int64_t x_stride;
    int rows;
    float* y;  // [rows, outputs]; kGated: [rows, outputs / 2]
    std::int64_t y_stride;
    LinearEnd end;
    Activation activation;  // of kGated and kActivate
    // With int8 weights: x is rounded to 8 bits in each group, and products are of whole numbers.
    bool rounds_x = false;
};

// Products are added up in float32. Results depend on the number of rows and the instruction set,
// not on the number of threads.
class LinearJob final : public Job {
  public:
    // Throws std::invalid_argument for sizes, strides or parameters that make no sense.
    LinearJob(const LinearWeight& weight, const LinearCall& call, Isa isa, int num_threads,
              BufferStore& buffers);

  private:
    friend class LinearMaps;
    void run_part(int part) override;

    // The outputs of one part: `count` columns of y from `first`; their weights are `ranges` runs
    // of rows, two if gated.
    struct Share;

    int count_units() const;
    std::size_t packed_floats(int rows, int inputs) const;
    std::size_t prepared_floats() const;
    void prepare();
    void prepare_unit(int unit);
    void round_row(int row);
    void stream(const Share& share, FloatBuffer& scratch) const;
    void stream_chunk(const WeightRows& weights, float* sums, std::int64_t stride) const;
    void stream_integers(const WeightRows& weights, float* sums, std::int64_t stride) const;
    void multiply_panels(const Share& share, FloatBuffer& scratch) const;
    void multiply_block(const Share& share, int range, int first, float* weights, float* sums,
                        std::int64_t sums_stride) const;
    void end(const Share& share, int row, const float* sums, const float* up_sums) const;
    std::int64_t row_groups() const { return weight_.inputs / weight_.group; }

    LinearWeight weight_;
    LinearCall call_;
    const LinearKernels& kernels_;
    const IntegerKernels& integer_kernels_;
    bool streams_;              // few rows of x: see `streams`
    int columns_;               // of y
    int share_columns_;         // of a part, but the last
    int padded_rows_;           // to whole vectors
    int block_inputs_;          // multiplied at a time
    int num_units_;             // of preparation
    Borrowed<float> prepared_;  // x in panels, or its sums per group, and then as rounded
    std::atomic<int> next_unit_{0};
    std::atomic<int> units_done_{0};
};

}  // namespace tandem

// Decode attention over one layer's pages, as a job for the pool.
#pragma once

#include <cstdint>
#include <memory>

#include "attention_kernel.hpp"
#include "attention_memory.hpp"
#include "attention_plan.hpp"
#include "isa.hpp"
#include "job.hpp"
#include "quantized_page.hpp"
#include "scratch.hpp"
#include "two_phases.hpp"

namespace tandem {

class AttentionJob final : public Job {
  public:
    // Throws std::invalid_argument if the pages do not hold every block of the plan, or cannot be
    // quantized.
    // `soft_cap` bounds scores to cap * tanh(score / cap); 0: none.
    AttentionJob(std::shared_ptr<const AttentionPlan> plan, const AttentionMemory& memory,
                 float scale, float soft_cap, Isa isa, BufferStore& buffers);

  private:
    void run_part(int part) override;

    // Sums, maximum and weight of each query of one row, KV head by KV head.
    struct State {
        float* sums;
        float* max;
        float* weight;
    };

    void attend(const Segment& segment, const Segment* next, FloatBuffer& scratch) const;
    void load_queries(const Segment& segment, float* target) const;
    // Where a segment's first key lies, and its scales in quantized pages; null without a key.
    struct Start {
        const char* key;
        const char* pairs;
    };
    Start first_key(const Segment* segment) const;
    QuantizedPage quantized_page() const;
    State partial(std::int32_t index) const;
    void merge_part(int part) const;
    void merge(const MergeRun& run) const;
    // Where a query's result goes, and its sink; null without sinks.
    struct Place {
        float* out;
        float* lse;
        const float* sink;
    };
    Place place_of(const AttentionPlan::Row& row, int query) const;
    void write(const AttentionPlan::Row& row, const State& state) const;

    std::shared_ptr<const AttentionPlan> plan_;
    AttentionMemory memory_;
    float scale_;     // of base-2 scores
    float soft_cap_;  // likewise
    const AttentionKernels& kernels_;
    AttendRun attend_;
    int groups_;  // of a head in quantized pages; 0
    int padded_dim_;
    int max_queries_;  // of one row
    std::size_t state_floats_;
    FirstPhase attending_;
    Borrowed<float> partials_;
};

}  // namespace tandem

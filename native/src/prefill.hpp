// Prefill attention over one layer's pages, as a job for the pool.
#pragma once

#include <cstdint>
#include <memory>

#include "attention_memory.hpp"
#include "isa.hpp"
#include "job.hpp"
#include "prefill_kernel.hpp"
#include "prefill_plan.hpp"
#include "scratch.hpp"
#include "two_phases.hpp"

namespace tandem {

class PrefillJob final : public Job {
  public:
    // Throws std::invalid_argument if the pages do not hold every block of the plan.
    // `soft_cap` bounds scores to cap * tanh(score / cap); 0: none.
    PrefillJob(std::shared_ptr<const PrefillPlan> plan, const AttentionMemory& memory, float scale,
               float soft_cap, Isa isa, BufferStore& buffers);

  private:
    void run_part(int part) override;

    // Of each query of a tile: see `PrefillRun`.
    struct State {
        float* sums;
        float* max;
        float* weight;
    };

    struct QueryPlace {
        int token;  // of the batch
        int head;
    };

    int count_queries(const QueryTile& tile) const;
    int count_panels(const QueryTile& tile) const;
    std::size_t state_floats(int panels) const;
    State place_state(float* at, int panels) const;
    std::size_t scratch_floats() const;
    void attend(const KeyRun& run, float* scratch) const;
    void fill_bounds(const QueryTile& tile, PanelBounds* bounds, std::int32_t* first_seen,
                     std::int32_t* visible) const;
    void pack(const QueryTile& tile, float* rows, float* panels) const;
    QueryPlace place(const QueryTile& tile, int query) const;
    int lanes_of_panel(const QueryTile& tile, int panel) const;  // in use
    void merge_part(int part) const;
    void merge(const TileMerge& merge) const;
    void write(const QueryTile& tile, const State& state) const;

    std::shared_ptr<const PrefillPlan> plan_;
    AttentionMemory memory_;
    float scale_;     // of base-2 scores
    float soft_cap_;  // likewise
    const PrefillKernels& kernels_;
    AttendPrefill attend_;
    PackPanel pack_;
    int max_panels_;  // of a tile
    FirstPhase attending_;
    Borrowed<float> partials_;
};

}  // namespace tandem

// Sweeps one after the other, as `tandem/planner/fluid/virtual_time.py` submits them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sweep_queues.hpp"

namespace tandem::planner {

struct Resources {
    double dram_bytes_per_s, both_ways;
};

// A schedule, what its operations ask for, and of which cohort each lane is, if any are told apart.
struct PricedSweep {
    std::shared_ptr<const SweepSchedule> schedule;
    std::vector<Work> demands;
    std::vector<int> cohorts;
};

// At two ends of sweeps: the mean of those between is the result.
using Between = std::pair<Totals, Totals>;

// Sweeps that are all submitted ahead; the last `cycle` ones are between. Of the first one, groups
// before `first` are done.
Between steady_sweep(const std::vector<PricedSweep>& sweeps, int first, int cycle,
                     const Resources& resources);

// A sweep that only ever follows itself, until one leaves the queues as the one before, to a share
// `same` of its time, or `most_sweeps` were timed.
Between repeated_sweep(const PricedSweep& sweep, int first, int most_sweeps, double same,
                       const Resources& resources);

}  // namespace tandem::planner

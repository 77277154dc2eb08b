// A simulator's step programs in virtual time, as `FluidQueues` of
// `tandem/planner/fluid/queues.py` has them: begun no earlier than they were launched, their
// cohorts joining at once, later, or not at all.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sweep_queues.hpp"

namespace tandem::planner {

// A schedule at the prices of one program.
struct PricedProgram {
    std::shared_ptr<const SweepSchedule> schedule;
    std::vector<Work> demands;  // of its operations
};

// A cohort (0: none) in a lane, and the number of the attention that it waits for.
struct ProgramLane {
    std::int64_t cohort, signal;
    bool guarded;  // it may be left out
};

// A group that somebody wants to know of has ended, or the last one of a program.
struct Ended {
    std::int64_t program;
    int group;
    bool complete;
};

// Prices of a program without the lanes that are left out.
using Pricing =
    std::function<PricedProgram(std::int64_t program, const std::vector<int>& left_out)>;

class ProgramQueues : public SweepQueues {
  public:
    using SweepQueues::SweepQueues;

    // Appends a program's groups; its number, counted from 0. Lanes are none if no cohort takes
    // part; cohorts that may be left out are after `max_wait_s`, once all else is there.
    std::int64_t submit(PricedProgram priced, double not_before_s,
                        const std::vector<ProgramLane>& lanes, std::optional<double> max_wait_s);
    // Other prices for a program under way.
    void reprice(std::int64_t program, const PricedProgram& priced);
    // Goes on to the next moment at which something ends that is to be told, and says what; nothing
    // if nothing does up to `until_s`, or ever. `pricing` is asked where a lane is left out.
    std::vector<Ended> advance(double until_s, const Pricing& pricing);
    // Forgets a cohort that has ended.
    void release(std::int64_t cohort);

  private:
    struct Join {
        int group, lane;
        std::int64_t count, cohort, signal;
        std::optional<double> max_wait_s, deadline_s;
    };
    struct Program {
        double not_before_s = 0.0;
        std::int64_t groups_left = 0;
        std::vector<Join> joins;  // in the order of their groups
        std::vector<int> left_out;
    };
    // Which attentions of a cohort are still to come, and when the CPU will have ended each.
    struct Cohort {
        std::int64_t coming;
        std::unordered_map<std::int64_t, std::int64_t> counts;
    };

    double ready_s(int queue, Submitted& submitted, int group) override;
    bool tells(const Running& run) override;
    double joined_s(int queue, Submitted& submitted, Join& join);
    double refuse(Submitted& submitted, const Join& join);
    Program& program_of(const Submitted& submitted) { return programs_[submitted.number - first_]; }

    std::deque<Program> programs_;
    std::int64_t first_ = 0;  // number of the first program that is kept
    std::unordered_map<std::int64_t, Cohort> cohorts_;
    std::vector<Ended> ended_;
    const Pricing* pricing_ = nullptr;
};

}  // namespace tandem::planner

// Queues in virtual time, as `FluidQueues` of `tandem/planner/fluid/queues.py`: every sum in its
// order, so that moments are its to the bit. For sweeps that a planner submits; `ProgramQueues` are
// those of a simulator.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "sweep_schedule.hpp"

namespace tandem::planner {

inline constexpr double kNever = INFINITY;

// So far: time, how long each queue has been busy, bytes moved in the host's memory.
struct Totals {
    double now_s = 0.0;
    ByQueue<double> busy_s{};
    double dram_bytes = 0.0;
    double hidden_s = 0.0;  // the CPU has been busy beside the accelerator
};

// How far queues have come: groups ahead, and what is left of the one under way.
struct Place {
    ByQueue<std::int64_t> ahead{};
    ByQueue<double> left_s{};
};

// A schedule on its way through the queues; its last group on the accelerator ends it.
struct Sweep {
    std::shared_ptr<const SweepSchedule> schedule;
    std::shared_ptr<const std::vector<Work>> works;
    // By group that joins: groups that the CPU's queue must have ended; none of them: all that it
    // was given before.
    std::vector<std::pair<int, std::int64_t>> joins;
};

class SweepQueues {
  public:
    SweepQueues(double dram_bytes_per_s, double both_ways);
    virtual ~SweepQueues() = default;

    // Appends a schedule's groups; those before `first`, of a first one, are done.
    void submit(Sweep sweep, int first = 0);
    // Goes on until a sweep ends. Throws std::logic_error if they wait for each other.
    void advance();

    const Totals& totals() const { return totals_; }
    Place place() const;
    std::int64_t submitted(int queue) const { return submitted_[queue]; }

  protected:
    struct Submitted {
        Sweep sweep;
        ByQueue<std::int64_t> base;
        std::int64_t number;  // of those submitted, from 0
    };
    struct Running {
        Submitted* of = nullptr;
        int group = 0;
    };

    // When a group that waits for no other starts: at once, later, or, with a watch set, never yet.
    virtual double ready_s(int queue, Submitted& submitted, int group);
    // Whether somebody wants to know of a group's end.
    virtual bool tells(const Running& run);

    // From one start or end to the next, if that is not after `until_s`; else nothing has changed.
    enum class Step { kOn, kTold, kAtLimit };
    Step step(double until_s);
    // When the CPU's queue has ended so many groups a queue is to be looked at again.
    void watch_cpu(std::int64_t until, int queue) { watching_[kCpu].push_back({until, queue}); }
    std::int64_t done(int queue) const { return done_[queue]; }
    Submitted& latest() { return sweeps_.back(); }
    Submitted& of_number(std::int64_t number) { return sweeps_[number - sweeps_.front().number]; }
    void forget_first() { sweeps_.pop_front(); }

  private:
    // Groups of a sweep on one queue, from one on.
    struct Line {
        Submitted* of;
        std::size_t at;
    };
    struct Watching {
        std::int64_t until;
        int queue;
    };

    bool waits(int queue, const Submitted& submitted, int group);
    double start();
    void wake(int queue);
    double share_out(double* step_s);
    double link_speeds(double* loads) const;
    bool busy(int queue) const { return running_[queue].of != nullptr; }

    double dram_, both_ways_;
    bool meet_;
    Totals totals_;
    std::deque<Submitted> sweeps_;
    std::int64_t num_sweeps_ = 0;
    ByQueue<std::int64_t> submitted_{}, done_{};
    ByQueue<std::deque<Line>> waiting_;
    ByQueue<std::vector<Watching>> watching_;
    ByQueue<Running> running_;
    // Of the group under way: seconds left alone, bytes per second, share of the link.
    ByQueue<double> left_{}, rate_{}, share_{};
    ByQueue<double> speeds_{};  // of those under way, by their order
    std::vector<int> look_, looked_, active_, over_;
};

}  // namespace tandem::planner

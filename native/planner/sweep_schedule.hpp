// A program prepared for virtual time, as `Schedule` of `tandem/planner/fluid/groups.py`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::planner {

// In the order of `tandem.plan.program.Queue`.
enum Queue : int { kAccel, kH2d, kD2h, kCpu, kWeights, kDisk, kQueues };

template <class Value>
using ByQueue = std::array<Value, kQueues>;

// What operations ask for: seconds alone, bytes per second of the host's memory, share of the link.
struct Work {
    double alone_s = 0.0, dram_bytes_per_s = 0.0, link_share = 0.0;
};

// A queue that has ended so many groups since the program's begin; 0 and below count back from it.
struct Wait {
    int queue;
    std::int64_t value;
};

// A group that waits for a cohort, or with which a cohort's attention ends.
struct CohortGroup {
    int group;
    std::int64_t place;  // on its queue, from 1
    std::optional<int> joins, raises;
};

// Which ends of a group a simulator tells of; of lanes with which a cohort goes on only if some
// lane has been left out.
enum class Telling : char { kNever, kOnceLeftOut, kAlways };

class SweepSchedule {
  public:
    using Waits = std::vector<std::pair<int, std::int64_t>>;
    using OpCounts = std::vector<std::pair<int, std::int64_t>>;

    // Throws std::invalid_argument where an index is none.
    SweepSchedule(const std::vector<std::vector<int>>& by_queue, const std::vector<Waits>& waits,
                  std::vector<OpCounts> costs, std::vector<int> cost_of,
                  std::vector<CohortGroup> cohorts, std::vector<Telling> telling = {});

    int num_groups() const { return static_cast<int>(cost_of_.size()); }
    const std::vector<int>& on(int queue) const { return by_queue_[queue]; }
    const Wait* waits_begin(int group) const { return waits_.data() + waits_begin_[group]; }
    const Wait* waits_end(int group) const { return waits_.data() + waits_begin_[group + 1]; }
    int cost_of(int group) const { return cost_of_[group]; }
    bool joins(int group) const { return joins_[group] != 0; }
    const std::vector<CohortGroup>& cohorts() const { return cohorts_; }
    Telling telling(int group) const {
        return telling_.empty() ? Telling::kNever : telling_[group];
    }

    // What each sum of operations asks for: by cost, not by group.
    std::vector<Work> works(const std::vector<Work>& demands) const;

  private:
    ByQueue<std::vector<int>> by_queue_;
    std::vector<Wait> waits_;
    std::vector<std::size_t> waits_begin_;  // by group, and the end
    std::vector<OpCounts> costs_;
    std::vector<int> cost_of_;
    std::vector<char> joins_;
    std::vector<CohortGroup> cohorts_;
    std::vector<Telling> telling_;  // by group, or empty
};

}  // namespace tandem::planner

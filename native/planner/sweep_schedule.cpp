#include "sweep_schedule.hpp"

#include <algorithm>

#include "require.hpp"

namespace tandem::planner {
namespace {

bool is_index(std::int64_t index, std::size_t count) {
    return index >= 0 && index < static_cast<std::int64_t>(count);
}

}  // namespace

SweepSchedule::SweepSchedule(const std::vector<std::vector<int>>& by_queue,
                             const std::vector<Waits>& waits, std::vector<OpCounts> costs,
                             std::vector<int> cost_of, std::vector<CohortGroup> cohorts,
                             std::vector<Telling> telling)
    : costs_(std::move(costs)),
      cost_of_(std::move(cost_of)),
      joins_(cost_of_.size()),
      cohorts_(std::move(cohorts)),
      telling_(std::move(telling)) {
    const std::size_t groups = cost_of_.size();
    require(by_queue.size() == kQueues && waits.size() == groups,
            "queues and waits must be as many as there are queues and groups");
    require(telling_.empty() || telling_.size() == groups, "each group is told of or is not");
    std::copy(by_queue.begin(), by_queue.end(), by_queue_.begin());
    std::size_t queued = 0;
    for (const std::vector<int>& places : by_queue_) {
        queued += places.size();
        for (int place : places) require(is_index(place, groups), "a queue holds what is no group");
        require(std::is_sorted(places.begin(), places.end()), "groups on a queue must be in order");
    }
    require(queued == groups, "each group must be on one queue");
    waits_begin_.reserve(groups + 1);
    for (const Waits& of_group : waits) {
        waits_begin_.push_back(waits_.size());
        for (const auto& [queue, value] : of_group) {
            require(is_index(queue, kQueues), "a group waits for what is no queue");
            waits_.push_back({queue, value});
        }
    }
    waits_begin_.push_back(waits_.size());
    for (int cost : cost_of_) require(is_index(cost, costs_.size()), "a group has no cost");
    for (const OpCounts& ops : costs_) {
        require(!ops.empty(), "a group must have an operation");
        for (const auto& [op, times] : ops) require(op >= 0, "operations count from 0");
    }
    for (const CohortGroup& cohort : cohorts_) {
        require(is_index(cohort.group, groups), "a cohort has what is no group");
        joins_[cohort.group] = cohort.joins.has_value();
    }
}

std::vector<Work> SweepSchedule::works(const std::vector<Work>& demands) const {
    std::vector<Work> found;
    found.reserve(costs_.size());
    for (const OpCounts& ops : costs_) {
        double alone_s = 0.0, size = 0.0;
        for (const auto& [op, count] : ops) {
            require(is_index(op, demands.size()), "an operation has no demand");
            const Work& demand = demands[op];
            const auto times = static_cast<double>(count);
            alone_s += times * demand.alone_s;
            size += times * demand.alone_s * demand.dram_bytes_per_s;
        }
        const double link_share = demands[ops.front().first].link_share;
        found.push_back({alone_s, alone_s != 0 ? size / alone_s : 0.0, link_share});
    }
    return found;
}

}  // namespace tandem::planner

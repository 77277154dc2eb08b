#include "steady_sweeps.hpp"

#include <cmath>
#include <cstdint>
#include <map>

#include "require.hpp"

namespace tandem::planner {
namespace {

std::shared_ptr<const std::vector<Work>> works_of(const PricedSweep& sweep) {
    require(!sweep.schedule->on(kAccel).empty(), "a sweep must end on the accelerator");
    return std::make_shared<const std::vector<Work>>(sweep.schedule->works(sweep.demands));
}

// What a cohort's joins wait for: the last attention of it, counted by groups that the CPU's queue
// was given, which `attended` keeps up to date.
std::vector<std::pair<int, std::int64_t>> joins_of(const PricedSweep& sweep, std::int64_t base,
                                                   std::map<int, std::int64_t>* attended) {
    std::vector<std::pair<int, std::int64_t>> joins;
    if (sweep.cohorts.empty()) return joins;
    const auto cohort_of = [&](int lane) {
        require(lane >= 0 && lane < static_cast<int>(sweep.cohorts.size()), "a lane has no cohort");
        return sweep.cohorts[lane];
    };
    for (const CohortGroup& each : sweep.schedule->cohorts()) {
        if (each.joins) joins.emplace_back(each.group, (*attended)[cohort_of(*each.joins)]);
        if (each.raises) (*attended)[cohort_of(*each.raises)] = base + each.place;
    }
    return joins;
}

bool is_same(const Place& place, const Place& other, double most_s) {
    for (int queue = 0; queue < kQueues; ++queue) {
        const double apart_s = std::abs(place.left_s[queue] - other.left_s[queue]);
        if (place.ahead[queue] != other.ahead[queue] || !(apart_s <= most_s)) return false;
    }
    return true;
}

}  // namespace

Between steady_sweep(const std::vector<PricedSweep>& sweeps, int first, int cycle,
                     const Resources& resources) {
    const auto count = static_cast<int>(sweeps.size());
    require(cycle > 0 && count > cycle, "there must be more sweeps than follow each other");
    SweepQueues queues(resources.dram_bytes_per_s, resources.both_ways);
    std::map<int, std::int64_t> attended;
    for (int number = 0; number < count; ++number) {
        const PricedSweep& sweep = sweeps[number];
        auto joins = joins_of(sweep, queues.submitted(kCpu), &attended);
        queues.submit({sweep.schedule, works_of(sweep), std::move(joins)}, number ? 0 : first);
    }
    Between found;
    for (int number = 0; number < count; ++number) {
        queues.advance();
        if (number == count - 1 - cycle) found.first = queues.totals();
    }
    found.second = queues.totals();
    return found;
}

Between repeated_sweep(const PricedSweep& priced, int first, int most_sweeps, double same,
                       const Resources& resources) {
    require(most_sweeps > 0, "most_sweeps must be positive");
    SweepQueues queues(resources.dram_bytes_per_s, resources.both_ways);
    const Sweep sweep{priced.schedule, works_of(priced), {}};
    queues.submit(sweep, first);
    queues.submit(sweep);
    queues.advance();
    Between found{{}, queues.totals()};
    Place place = queues.place();
    for (int timed = 1; timed <= most_sweeps; ++timed) {
        queues.submit(sweep);
        queues.advance();
        found = {found.second, queues.totals()};
        const Place was = place;
        place = queues.place();
        const double period_s = found.second.now_s - found.first.now_s;
        if (is_same(place, was, same * period_s)) break;
    }
    return found;
}

}  // namespace tandem::planner

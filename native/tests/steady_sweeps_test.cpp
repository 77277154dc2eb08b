// Sweeps in virtual time: a few by hand, and random schedules to their ends. That they end when
// Python's do is for Python's tests.
#include "steady_sweeps.hpp"

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"

namespace {

using namespace tandem::planner;
using Waits = SweepSchedule::Waits;
using OpCounts = SweepSchedule::OpCounts;

constexpr Resources kResources{10.0, 1.3};

// Groups in a topological order; each is of one operation, that of its own cost.
struct Made {
    std::vector<std::vector<int>> by_queue{kQueues};
    std::vector<Waits> waits;
    std::vector<OpCounts> costs;
    std::vector<int> cost_of;
    std::vector<CohortGroup> cohorts;

    int add(int queue, int op, const Waits& awaited) {
        const int group = static_cast<int>(cost_of.size());
        by_queue[queue].push_back(group);
        waits.push_back(awaited);
        costs.push_back({{op, 1}});
        cost_of.push_back(group);
        return group;
    }

    std::shared_ptr<const SweepSchedule> schedule() const {
        return std::make_shared<SweepSchedule>(by_queue, waits, costs, cost_of, cohorts);
    }
};

void one_queue_waits_for_the_other() {
    Made made;
    made.add(kCpu, 0, {});
    made.add(kAccel, 1, {{kCpu, 1}});
    const PricedSweep sweep{made.schedule(), {{2.0, 5.0, 0.0}, {1.0, 0.0, 0.0}}, {}};
    const auto [before, after] = repeated_sweep(sweep, 0, 8, 1e-9, kResources);
    // The CPU goes on with the next sweep, and is never idle.
    CHECK(std::abs(after.now_s - before.now_s - 2.0) < 1e-9);
    CHECK(std::abs(after.dram_bytes - before.dram_bytes - 10.0) < 1e-9);
    CHECK(std::abs(after.busy_s[kAccel] - before.busy_s[kAccel] - 1.0) < 1e-9);
}

void random_sweeps_end() {
    std::mt19937 random(0);
    const auto draw = [&](int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(random);
    };
    for (int number = 0; number < 300; ++number) {
        Made made;
        std::vector<std::int64_t> counts(kQueues);
        for (int groups = draw(0, 60); groups >= 0; --groups) {
            const int queue = groups ? draw(0, kQueues - 1) : int{kAccel};
            ++counts[queue];
            const int other = draw(0, kQueues - 1);
            Waits waits;
            if (other != queue) waits.push_back({other, draw(-2, static_cast<int>(counts[other]))});
            const int group = made.add(queue, draw(0, 4), waits);
            if (queue == kCpu) made.cohorts.push_back({group, counts[queue], {}, draw(0, 1)});
            if (queue == kAccel) made.cohorts.push_back({group, counts[queue], draw(0, 1), {}});
        }
        std::vector<Work> demands;
        for (int op = 0; op < 5; ++op) {
            demands.push_back({draw(0, 4) * 0.25, draw(0, 2) * 4.0, draw(0, 2) * 0.5});
        }
        const auto schedule = made.schedule();
        const int first = draw(0, schedule->on(kAccel).back());
        const PricedSweep alone{schedule, demands, {}}, cohorts{schedule, demands, {0, 1}};
        CHECK(repeated_sweep(alone, first, 8, 1e-9, kResources).second.now_s >= 0);
        CHECK(steady_sweep({cohorts, alone, cohorts}, first, 2, kResources).second.now_s >= 0);
    }
}

template <class Error, class Action>
void throws(Action action) {
    bool thrown = false;
    try {
        action();
    } catch (const Error&) {
        thrown = true;
    }
    CHECK(thrown);
}

void faults_are_told() {
    Made waiting;
    waiting.add(kAccel, 0, {{kCpu, 1}});
    const PricedSweep sweep{waiting.schedule(), {{1.0, 0.0, 0.0}}, {}};
    throws<std::logic_error>([&] { repeated_sweep(sweep, 0, 1, 1e-9, kResources); });
    throws<std::invalid_argument>(
        [&] { repeated_sweep({waiting.schedule(), {}, {}}, 0, 1, 1e-9, kResources); });
    Made nowhere;
    nowhere.add(kAccel, 0, {{kQueues, 1}});
    throws<std::invalid_argument>([&] { nowhere.schedule(); });
}

}  // namespace

int main() {
    one_queue_waits_for_the_other();
    random_sweeps_end();
    faults_are_told();
    std::puts("sweeps: two queues by hand, random ones to their ends, faults told");
}

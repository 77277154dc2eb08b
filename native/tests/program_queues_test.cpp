// Programs in virtual time: launches, joins that happen and that are refused, what is told. That
// they end when Python's do is for Python's tests.
#include "program_queues.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"

namespace {

using namespace tandem::planner;

constexpr double kDramBytesPerS = 10.0, kApart = 2.0;

std::shared_ptr<const SweepSchedule> schedule_of(const std::vector<int>& queues,
                                                 const std::vector<SweepSchedule::Waits>& waits,
                                                 std::vector<CohortGroup> cohorts,
                                                 std::vector<Telling> telling) {
    std::vector<std::vector<int>> by_queue{kQueues};
    std::vector<SweepSchedule::OpCounts> costs;
    std::vector<int> cost_of;
    for (int group = 0; group < static_cast<int>(queues.size()); ++group) {
        by_queue[queues[group]].push_back(group);
        costs.push_back({{group, 1}});
        cost_of.push_back(group);
    }
    return std::make_shared<SweepSchedule>(by_queue, waits, costs, cost_of, std::move(cohorts),
                                           std::move(telling));
}

// The accelerator for a second, then a cohort's attention for two: it begins.
PricedProgram beginning() {
    return {schedule_of({kAccel, kCpu}, {{}, {{kAccel, 1}}}, {{1, 1, {}, 0}},
                        {Telling::kAlways, Telling::kNever}),
            {{1.0, 0.0, 0.0}, {2.0, 0.0, 0.0}}};
}

// The cohort joins for a second, goes on to attend, and the accelerator works on.
PricedProgram joining(double join_s) {
    return {
        schedule_of({kAccel, kCpu, kAccel}, {{}, {{kAccel, 1}}, {}}, {{0, 1, 0, {}}, {1, 1, {}, 0}},
                    {Telling::kOnceLeftOut, Telling::kNever, Telling::kAlways}),
        {{join_s, 0.0, 0.0}, {join_s, 0.0, 0.0}, {1.0, 0.0, 0.0}}};
}

const Pricing kWithout = [](std::int64_t, const std::vector<int>& left_out) {
    CHECK(left_out == std::vector<int>{0});
    return joining(0.0);
};

void ends(ProgramQueues* queues, std::int64_t program, int group, bool complete, double at_s) {
    const std::vector<Ended> ended = queues->advance(kNever, kWithout);
    CHECK(ended.size() == 1);
    CHECK(ended[0].program == program && ended[0].group == group);
    CHECK(ended[0].complete == complete);
    CHECK(queues->totals().now_s == at_s);
}

void a_cohort_that_comes_in_time_joins() {
    ProgramQueues queues(kDramBytesPerS, kApart);
    CHECK(queues.submit(beginning(), 0.5, {{7, 0, false}}, {}) == 0);
    CHECK(queues.submit(joining(1.0), 0.5, {{7, 1, true}}, 2.0) == 1);
    CHECK(queues.advance(1.0, kWithout).empty());  // nothing ends by then
    ends(&queues, 0, 0, false, 1.5);
    ends(&queues, 0, 1, true, 3.5);
    // Its join, a second before, is not told by itself.
    const std::vector<Ended> last = queues.advance(kNever, kWithout);
    CHECK(last.size() == 2 && queues.totals().now_s == 5.5);
    CHECK(last[0].group == 2 && !last[0].complete && last[1].group == 1 && last[1].complete);
    CHECK(queues.totals().hidden_s == 1.0);
    queues.release(7);
    CHECK(queues.advance(kNever, kWithout).empty());
}

void one_that_does_not_is_left_out_and_told() {
    ProgramQueues queues(kDramBytesPerS, kApart);
    queues.submit(beginning(), 0.0, {{7, 0, false}}, {});
    queues.submit(joining(1.0), 0.0, {{7, 1, true}}, 0.5);
    queues.submit(joining(1.0), 0.0, {{7, 2, true}}, 0.5);  // of what has been refused before
    ends(&queues, 0, 0, false, 1.0);
    ends(&queues, 1, 0, false, 1.5);
    ends(&queues, 1, 2, false, 2.5);
    ends(&queues, 2, 0, false, 2.5);
}

void random_programs_end() {
    std::mt19937 random(0);
    const auto draw = [&](int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(random);
    };
    for (int number = 0; number < 100; ++number) {
        ProgramQueues queues(kDramBytesPerS, kApart);
        std::int64_t signal = 0;
        int complete = 0;
        for (int program = 0; program < 20; ++program) {
            const bool begins = signal == 0;
            queues.submit(begins ? beginning() : joining(draw(0, 3) * 0.5), program * 0.25,
                          {{1, signal, draw(0, 1) == 1 || signal > 1}}, draw(0, 2) * 0.5);
            ++signal;
            if (draw(0, 1) == 0) {
                for (const Ended& end : queues.advance(program, kWithout)) complete += end.complete;
            }
        }
        while (true) {
            const std::vector<Ended> ended = queues.advance(kNever, kWithout);
            if (ended.empty()) break;
            for (const Ended& end : ended) complete += end.complete;
        }
        CHECK(complete == 20);
    }
}

void faults_are_told() {
    ProgramQueues queues(kDramBytesPerS, kApart);
    bool thrown = false;
    try {
        queues.submit(joining(1.0), 0.0, {{1, 1, false}}, {});  // nobody began its attention
    } catch (const std::invalid_argument&) {
        thrown = true;
    }
    CHECK(thrown);
}

}  // namespace

int main() {
    a_cohort_that_comes_in_time_joins();
    one_that_does_not_is_left_out_and_told();
    random_programs_end();
    faults_are_told();
    std::puts("programs: joins in time and refused, random ones to their ends, faults told");
}

#include "program_queues.hpp"

#include <algorithm>
#include <utility>

#include "require.hpp"

namespace tandem::planner {
namespace {

std::shared_ptr<const std::vector<Work>> works_of(const PricedProgram& priced) {
    return std::make_shared<const std::vector<Work>>(priced.schedule->works(priced.demands));
}

}  // namespace

std::int64_t ProgramQueues::submit(PricedProgram priced, double not_before_s,
                                   const std::vector<ProgramLane>& lanes,
                                   std::optional<double> max_wait_s) {
    const std::shared_ptr<const SweepSchedule> schedule = priced.schedule;
    Program program{not_before_s, schedule->num_groups(), {}, {}};
    if (!lanes.empty()) {
        const std::int64_t base = submitted(kCpu);
        for (const CohortGroup& group : schedule->cohorts()) {
            if (group.joins) {
                require(*group.joins < static_cast<int>(lanes.size()), "a join has no lane");
                const ProgramLane& lane = lanes[*group.joins];
                const auto known = cohorts_.find(lane.cohort);
                require(known != cohorts_.end() && known->second.counts.contains(lane.signal),
                        "a join waits for what nobody begins");
                const std::int64_t count = known->second.counts[lane.signal];
                std::optional<double> bound_s;
                if (lane.guarded) bound_s = max_wait_s;
                program.joins.push_back(
                    {group.group, *group.joins, count, lane.cohort, lane.signal, bound_s, {}});
            }
            if (group.raises) {
                require(*group.raises < static_cast<int>(lanes.size()), "a signal has no lane");
                const ProgramLane& lane = lanes[*group.raises];
                Cohort& cohort =
                    cohorts_.try_emplace(lane.cohort, Cohort{lane.signal + 1, {}}).first->second;
                cohort.counts[lane.signal + 1] = base + group.place;
            }
        }
    }
    Sweep sweep{schedule, works_of(priced), {}};
    programs_.push_back(std::move(program));
    SweepQueues::submit(std::move(sweep));
    return latest().number;
}

void ProgramQueues::reprice(std::int64_t program, const PricedProgram& priced) {
    if (program < first_) return;  // it has ended
    Submitted& submitted = of_number(program);
    require(priced.schedule->num_groups() == submitted.sweep.schedule->num_groups(),
            "other prices are not of the same program");
    submitted.sweep.schedule = priced.schedule;
    submitted.sweep.works = works_of(priced);
}

std::vector<Ended> ProgramQueues::advance(double until_s, const Pricing& pricing) {
    pricing_ = &pricing;
    ended_.clear();
    while (step(until_s) == Step::kOn) {
    }
    while (!programs_.empty() && programs_.front().groups_left == 0) {
        programs_.pop_front();
        forget_first();
        ++first_;
    }
    return ended_;
}

void ProgramQueues::release(std::int64_t cohort) { cohorts_.erase(cohort); }

double ProgramQueues::ready_s(int queue, Submitted& submitted, int group) {
    Program& program = program_of(submitted);
    const double now_s = totals().now_s;
    if (program.not_before_s > now_s) return program.not_before_s;
    if (!submitted.sweep.schedule->joins(group)) return now_s;
    const auto join =
        std::lower_bound(program.joins.begin(), program.joins.end(), group,
                         [](const Join& each, int place) { return each.group < place; });
    if (join != program.joins.end() && join->group == group) {
        return joined_s(queue, submitted, *join);
    }
    return SweepQueues::ready_s(queue, submitted, group);
}

// When the wait for a cohort is over, as far as time alone decides it.
double ProgramQueues::joined_s(int queue, Submitted& submitted, Join& join) {
    const double now_s = totals().now_s;
    const auto cohort = cohorts_.find(join.cohort);
    if (cohort != cohorts_.end() && join.signal > cohort->second.coming) {
        return refuse(submitted, join);
    }
    if (done(kCpu) >= join.count) {
        if (cohort != cohorts_.end()) cohort->second.coming = join.signal + 1;
        return now_s;
    }
    if (!join.max_wait_s) {
        watch_cpu(join.count, queue);
        return kNever;
    }
    if (!join.deadline_s) join.deadline_s = now_s + *join.max_wait_s;
    return now_s >= *join.deadline_s ? refuse(submitted, join) : *join.deadline_s;
}

// The cohort does not join; the sweep goes on without it.
double ProgramQueues::refuse(Submitted& submitted, const Join& join) {
    std::vector<int>& left_out = program_of(submitted).left_out;
    if (std::find(left_out.begin(), left_out.end(), join.lane) == left_out.end()) {
        left_out.push_back(join.lane);
        reprice(submitted.number, (*pricing_)(submitted.number, left_out));
    }
    return totals().now_s;
}

bool ProgramQueues::tells(const Running& run) {
    Program& program = program_of(*run.of);
    const bool complete = --program.groups_left == 0;
    const Telling telling = run.of->sweep.schedule->telling(run.group);
    const bool told = complete || telling == Telling::kAlways ||
                      (telling == Telling::kOnceLeftOut && !program.left_out.empty());
    if (told) ended_.push_back({run.of->number, run.group, complete});
    return told;
}

}  // namespace tandem::planner

#include "sweep_queues.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "require.hpp"

namespace tandem::planner {
namespace {

constexpr double kRoundingS = 1e-15;
constexpr double kApart = 2.0;  // shares of the link that directions have which share nothing

bool on_link(int queue) { return queue == kH2d || queue == kD2h || queue == kWeights; }

}  // namespace

SweepQueues::SweepQueues(double dram_bytes_per_s, double both_ways)
    : dram_(dram_bytes_per_s), both_ways_(both_ways), meet_(both_ways < kApart) {
    require(dram_bytes_per_s > 0 && both_ways > 0, "rates must be positive");
}

void SweepQueues::submit(Sweep sweep, int first) {
    const SweepSchedule& schedule = *sweep.schedule;
    sweeps_.push_back({std::move(sweep), submitted_, num_sweeps_++});
    Submitted& submitted = sweeps_.back();
    for (int queue = 0; queue < kQueues; ++queue) {
        const std::vector<int>& groups = schedule.on(queue);
        const auto done = std::lower_bound(groups.begin(), groups.end(), first) - groups.begin();
        done_[queue] += done;
        submitted_[queue] += static_cast<std::int64_t>(groups.size());
        if (done == static_cast<std::ptrdiff_t>(groups.size())) continue;
        if (waiting_[queue].empty() && !busy(queue)) look_.push_back(queue);
        waiting_[queue].push_back({&submitted, static_cast<std::size_t>(done)});
    }
}

Place SweepQueues::place() const {
    Place found;
    for (int queue = 0; queue < kQueues; ++queue) {
        found.ahead[queue] = submitted_[queue] - done_[queue];
        found.left_s[queue] = busy(queue) ? left_[queue] : 0.0;
    }
    return found;
}

void SweepQueues::advance() {
    Step reached = Step::kOn;
    while (reached == Step::kOn) reached = step(kNever);
    if (reached == Step::kAtLimit) throw std::logic_error("the sweeps wait for each other");
}

bool SweepQueues::tells(const Running& run) {
    return run.group == run.of->sweep.schedule->on(kAccel).back();
}

SweepQueues::Step SweepQueues::step(double until_s) {
    const double wake_s = look_.empty() ? kNever : start();
    double drawn = 0.0, step_s = kNever;
    for (int queue : active_) {
        drawn += rate_[queue];
        if (left_[queue] < step_s) step_s = left_[queue];
    }
    bool shared = busy(kWeights) && busy(kH2d);
    if (meet_ && busy(kD2h)) shared |= busy(kWeights) || busy(kH2d);
    shared |= drawn > dram_;
    if (shared) drawn = share_out(&step_s);
    double next_s = totals_.now_s + step_s;
    if (wake_s - totals_.now_s < step_s) {
        step_s = wake_s - totals_.now_s;
        next_s = wake_s;
    }
    if (next_s > until_s || next_s == kNever) return Step::kAtLimit;
    totals_.dram_bytes += drawn * step_s;
    if (busy(kCpu) && busy(kAccel)) totals_.hidden_s += step_s;
    const int loads = busy(kH2d) ? kWeights : kH2d;
    over_.clear();
    for (std::size_t place = 0; place < active_.size(); ++place) {
        const int queue = active_[place];
        totals_.busy_s[queue == kWeights ? loads : queue] += step_s;
        left_[queue] -= shared ? speeds_[place] * step_s : step_s;
        if (left_[queue] <= kRoundingS) over_.push_back(queue);
    }
    totals_.now_s = next_s;
    bool told = false;
    for (int queue : over_) {
        const Running run = running_[queue];
        active_.erase(std::find(active_.begin(), active_.end(), queue));
        running_[queue] = {};
        ++done_[queue];
        if (!waiting_[queue].empty()) look_.push_back(queue);
        if (!watching_[queue].empty()) wake(queue);
        told |= tells(run);
    }
    return told ? Step::kTold : Step::kOn;
}

// Looks at those that a queue has come far enough for.
void SweepQueues::wake(int queue) {
    std::vector<Watching>& watching = watching_[queue];
    const auto left =
        std::remove_if(watching.begin(), watching.end(), [this, queue](const Watching& each) {
            if (done_[queue] < each.until) return false;
            look_.push_back(each.queue);
            return true;
        });
    watching.erase(left, watching.end());
}

// Starts what can start; when a group that waits for time alone will be able to.
double SweepQueues::start() {
    double wake_s = kNever;
    looked_.clear();
    std::swap(looked_, look_);
    std::sort(looked_.begin(), looked_.end());
    for (int queue : looked_) {
        Line& line = waiting_[queue].front();
        Submitted& submitted = *line.of;
        const int group = submitted.sweep.schedule->on(queue)[line.at];
        if (waits(queue, submitted, group)) continue;
        const double at_s = ready_s(queue, submitted, group);
        if (at_s > totals_.now_s) {
            if (at_s == kNever) continue;  // it is looked at when another has come far enough
            look_.push_back(queue);
            wake_s = std::min(wake_s, at_s);
            continue;
        }
        const SweepSchedule& schedule = *submitted.sweep.schedule;
        if (++line.at == schedule.on(queue).size()) waiting_[queue].pop_front();
        running_[queue] = {&submitted, group};
        const Work& work = (*submitted.sweep.works)[schedule.cost_of(group)];
        left_[queue] = work.alone_s;
        rate_[queue] = work.dram_bytes_per_s;
        share_[queue] = work.link_share;
        active_.push_back(queue);
    }
    return wake_s;
}

// Whether another's end is awaited; the queue is looked at again when that one has come so far.
bool SweepQueues::waits(int queue, const Submitted& submitted, int group) {
    const SweepSchedule& schedule = *submitted.sweep.schedule;
    for (const Wait* wait = schedule.waits_begin(group); wait != schedule.waits_end(group);
         ++wait) {
        const std::int64_t until = submitted.base[wait->queue] + wait->value;
        if (done_[wait->queue] >= until) continue;
        watching_[wait->queue].push_back({until, queue});
        return true;
    }
    return false;
}

double SweepQueues::ready_s(int queue, Submitted& submitted, int group) {
    if (!submitted.sweep.schedule->joins(group)) return totals_.now_s;
    std::int64_t until = submitted.base[kCpu];
    for (const auto& [joining, count] : submitted.sweep.joins) {
        if (joining == group) until = count;
    }
    if (done_[kCpu] >= until) return totals_.now_s;
    watch_cpu(until, queue);
    return kNever;
}

// What the groups under way draw from the host's memory; sets how fast each is relative to alone,
// and seconds until one of them ends.
double SweepQueues::share_out(double* step_s) {
    double loads = 1.0;
    const double link = link_speeds(&loads);
    double drawn = 0.0;
    for (std::size_t place = 0; place < active_.size(); ++place) {
        const int queue = active_[place];
        double speed = 1.0;
        if (on_link(queue)) speed = queue == kWeights ? loads * link : link;
        speeds_[place] = speed;
        drawn += speed * rate_[queue];
    }
    double slower = 1.0;
    if (drawn > dram_) {
        slower = dram_ / drawn;
        drawn = dram_;
    }
    *step_s = kNever;
    for (std::size_t place = 0; place < active_.size(); ++place) {
        const int queue = active_[place];
        if (rate_[queue] != 0) speeds_[place] *= slower;
        const double speed = speeds_[place];
        if (speed != 0 && left_[queue] / speed < *step_s) *step_s = left_[queue] / speed;
    }
    return drawn;
}

// Of all on the link, whose directions have no more than `both_ways` at once; sets that of loads,
// which small copies go before.
double SweepQueues::link_speeds(double* loads) const {
    const double copies = busy(kH2d) ? share_[kH2d] : 0.0;
    *loads = copies < 1.0 ? 1.0 - copies : 0.0;
    if (!(meet_ && busy(kD2h))) return 1.0;
    const double up = copies + (busy(kWeights) ? *loads * share_[kWeights] : 0.0);
    const double down = share_[kD2h];
    const bool crossing = up != 0 && down != 0 && up + down > both_ways_;
    return crossing ? both_ways_ / (up + down) : 1.0;
}

}  // namespace tandem::planner

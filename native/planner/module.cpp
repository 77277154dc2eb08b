// Python's view of the planner's loops. None of them calls Python, but for a price that is a
// function of Python's; the others release the interpreter.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cfloat>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_programs.hpp"
#include "steady_sweeps.hpp"
#include "sweep_schedule.hpp"
#include "sweep_times.hpp"
#include "wave.hpp"
#include "wave_job.hpp"

namespace tandem::planner {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// Wider intermediates would round otherwise than Python's.
static_assert(FLT_EVAL_METHOD == 0, "the planner's loops need sums that are rounded to doubles");

using HomeFields = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, double, double>;
using Shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
using JobTimes = std::tuple<double, std::vector<double>, std::vector<double>, std::vector<int>>;
using ExpertFields = std::tuple<double, double, double>;
using Demands = std::vector<std::tuple<double, double, double>>;
using CohortGroups =
    std::vector<std::tuple<int, std::int64_t, std::optional<int>, std::optional<int>>>;
using SchedulePointer = std::shared_ptr<SweepSchedule>;
using SweepFields = std::tuple<SchedulePointer, Demands, std::vector<int>>;
using TotalsFields = std::vector<double>;

Home home_of(const HomeFields& fields) { return std::make_from_tuple<Home>(fields); }

Wave make_wave(const HomeFields& device, const HomeFields& host, std::int64_t places,
               std::int64_t block_size, double prompt_tokens, double each) {
    return {{home_of(device), home_of(host)}, places, block_size, prompt_tokens, each};
}

JobTimes live_through(const Wave& wave, const Shapes& shapes, const SweepS& sweep_s) {
    std::vector<RequestShape> requests;
    requests.reserve(shapes.size());
    for (const auto& [prompt_tokens, generated_tokens] : shapes) {
        requests.push_back({prompt_tokens, generated_tokens});
    }
    WaveJob job(wave, requests, sweep_s);
    const double job_s = job.run();
    return {job_s, job.begun_s(), job.decoding_s(), job.homes()};
}

JobTimes job_by_times(const Wave& wave, const Shapes& shapes, const SweepTimes& times) {
    nb::gil_scoped_release release;
    return live_through(wave, shapes, std::cref(times));
}

JobTimes job_by_function(const Wave& wave, const Shapes& shapes, const nb::callable& sweep_s) {
    return live_through(wave, shapes, [&sweep_s](double device, double host, double prompts) {
        return nb::cast<double>(sweep_s(device, host, prompts));
    });
}

SweepTimes make_times(double least_s, double device_token_s, double host_token_s,
                      SweepTimes::Prompts prompts, std::optional<double> hosted_s,
                      const std::optional<ExpertFields>& experts) {
    std::optional<ExpertTimes> times;
    if (experts) times = std::make_from_tuple<ExpertTimes>(*experts);
    return {least_s, device_token_s, host_token_s, std::move(prompts), hosted_s, times};
}

SchedulePointer make_schedule(const std::vector<std::vector<int>>& by_queue,
                              const std::vector<SweepSchedule::Waits>& waits,
                              std::vector<SweepSchedule::OpCounts> costs, std::vector<int> cost_of,
                              const CohortGroups& cohorts, const std::vector<int>& telling) {
    std::vector<CohortGroup> groups;
    for (const auto& fields : cohorts) groups.push_back(std::make_from_tuple<CohortGroup>(fields));
    std::vector<Telling> told;
    for (int kind : telling) told.push_back(static_cast<Telling>(kind));
    return std::make_shared<SweepSchedule>(by_queue, waits, std::move(costs), std::move(cost_of),
                                           std::move(groups), std::move(told));
}

PricedSweep priced(const SweepFields& fields) {
    const auto& [schedule, demands, cohorts] = fields;
    std::vector<Work> works;
    works.reserve(demands.size());
    for (const auto& demand : demands) works.push_back(std::make_from_tuple<Work>(demand));
    return {schedule, std::move(works), cohorts};
}

TotalsFields fields_of(const Totals& totals) {
    TotalsFields found{totals.now_s};
    found.insert(found.end(), totals.busy_s.begin(), totals.busy_s.end());
    found.push_back(totals.dram_bytes);
    return found;
}

std::pair<TotalsFields, TotalsFields> fields_of(const Between& between) {
    return {fields_of(between.first), fields_of(between.second)};
}

auto steady(const std::vector<SweepFields>& sweeps, int first, int cycle, double dram_bytes_per_s,
            double both_ways) {
    nb::gil_scoped_release release;
    std::vector<PricedSweep> all;
    all.reserve(sweeps.size());
    for (const SweepFields& fields : sweeps) all.push_back(priced(fields));
    return fields_of(steady_sweep(all, first, cycle, {dram_bytes_per_s, both_ways}));
}

auto repeated(const SchedulePointer& schedule, const Demands& demands, int first, int most_sweeps,
              double same, double dram_bytes_per_s, double both_ways) {
    nb::gil_scoped_release release;
    return fields_of(repeated_sweep(priced({schedule, demands, {}}), first, most_sweeps, same,
                                    {dram_bytes_per_s, both_ways}));
}

}  // namespace
}  // namespace tandem::planner

NB_MODULE(_loops, module) {
    using namespace nanobind::literals;
    using namespace tandem::planner;
    // Schedules that somebody still holds when a process ends, such as a traceback, are no fault.
    nb::set_leak_warnings(false);
    nb::class_<Wave>(module, "Wave")
        .def(nb::new_(&make_wave), "device"_a, "host"_a, "places"_a, "block_size"_a,
             "prompt_tokens"_a, "each"_a);
    nb::class_<SweepTimes>(module, "SweepTimes")
        .def(nb::new_(&make_times), "least_s"_a, "device_token_s"_a, "host_token_s"_a, "prompts"_a,
             "hosted_s"_a.none(), "experts"_a.none())
        .def("__call__", &SweepTimes::operator());
    module.def("job", &job_by_times, "wave"_a, "shapes"_a, "sweep_s"_a);
    module.def("job", &job_by_function, "wave"_a, "shapes"_a, "sweep_s"_a);
    nb::class_<SweepSchedule>(module, "Schedule")
        .def(nb::new_(&make_schedule), "by_queue"_a, "waits"_a, "costs"_a, "cost_of"_a, "cohorts"_a,
             "telling"_a = std::vector<int>{});
    module.def("steady_sweep", &steady, "sweeps"_a, "first"_a, "cycle"_a, "dram_bytes_per_s"_a,
               "both_ways"_a);
    module.def("repeated_sweep", &repeated, "schedule"_a, "demands"_a, "first"_a, "most_sweeps"_a,
               "same"_a, "dram_bytes_per_s"_a, "both_ways"_a);
    bind_programs(module);
}

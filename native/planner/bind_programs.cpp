#include "bind_programs.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "program_queues.hpp"

namespace tandem::planner {
namespace {

namespace nb = nanobind;

using Demands = std::vector<std::tuple<double, double, double>>;
using SchedulePointer = std::shared_ptr<SweepSchedule>;
using LaneFields = std::tuple<std::int64_t, std::int64_t, bool>;
using EndedFields = std::tuple<std::int64_t, int, bool>;

PricedProgram priced(SchedulePointer schedule, const Demands& demands) {
    PricedProgram found{std::move(schedule), {}};
    found.demands.reserve(demands.size());
    for (const auto& demand : demands) {
        found.demands.push_back(std::make_from_tuple<Work>(demand));
    }
    return found;
}

std::int64_t submit(ProgramQueues& queues, SchedulePointer schedule, const Demands& demands,
                    double not_before_s, const std::vector<LaneFields>& lanes,
                    std::optional<double> max_wait_s) {
    std::vector<ProgramLane> taking_part;
    taking_part.reserve(lanes.size());
    for (const auto& lane : lanes) taking_part.push_back(std::make_from_tuple<ProgramLane>(lane));
    return queues.submit(priced(std::move(schedule), demands), not_before_s, taking_part,
                         max_wait_s);
}

void reprice(ProgramQueues& queues, std::int64_t program, SchedulePointer schedule,
             const Demands& demands) {
    queues.reprice(program, priced(std::move(schedule), demands));
}

std::vector<EndedFields> advance(ProgramQueues& queues, double until_s, const nb::callable& price) {
    const auto ask = [&price](std::int64_t program, const std::vector<int>& left_out) {
        using Fields = std::pair<SchedulePointer, Demands>;
        auto [schedule, demands] = nb::cast<Fields>(price(program, left_out));
        return priced(std::move(schedule), demands);
    };
    std::vector<EndedFields> found;
    for (const Ended& each : queues.advance(until_s, ask)) {
        found.emplace_back(each.program, each.group, each.complete);
    }
    return found;
}

}  // namespace

void bind_programs(nb::module_& module) {
    using namespace nanobind::literals;
    nb::class_<ProgramQueues>(module, "ProgramQueues")
        .def(nb::init<double, double>(), "dram_bytes_per_s"_a, "both_ways"_a)
        .def("submit", &submit, "schedule"_a, "demands"_a, "not_before_s"_a, "lanes"_a,
             "max_wait_s"_a.none())
        .def("reprice", &reprice, "program"_a, "schedule"_a, "demands"_a)
        .def("advance", &advance, "until_s"_a, "price"_a)
        .def("release", &ProgramQueues::release, "cohort"_a)
        .def_prop_ro("now_s", [](const ProgramQueues& queues) { return queues.totals().now_s; })
        .def_prop_ro("busy_s",
                     [](const ProgramQueues& queues) {
                         const auto& busy_s = queues.totals().busy_s;
                         return std::vector<double>(busy_s.begin(), busy_s.end());
                     })
        .def_prop_ro("dram_bytes",
                     [](const ProgramQueues& queues) { return queues.totals().dram_bytes; })
        .def_prop_ro("hidden_s",
                     [](const ProgramQueues& queues) { return queues.totals().hidden_s; });
}

}  // namespace tandem::planner

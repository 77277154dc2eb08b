// Python's view of a simulator's queues.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem::planner {

void bind_programs(nanobind::module_& module);

}  // namespace tandem::planner

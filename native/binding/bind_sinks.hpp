// Attention sinks as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem {

void bind_sinks(nanobind::module_& module);

}  // namespace tandem

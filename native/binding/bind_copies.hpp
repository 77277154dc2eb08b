// Copies between pools of pages as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem {

void bind_copies(nanobind::module_& module);

}  // namespace tandem

// The host's part of whole steps as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem {

void bind_sweep(nanobind::module_& module);

}  // namespace tandem

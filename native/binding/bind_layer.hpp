// Python's view of decoder layers and norms.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem {

void bind_layer(nanobind::module_& module);

}  // namespace tandem

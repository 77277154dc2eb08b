#include "bind_sinks.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <vector>

#include "arrays.hpp"
#include "pool.hpp"
#include "sinks.hpp"
#include "task.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

std::unique_ptr<Task> sinks_task(const std::shared_ptr<Pool>& pool, const Array& out,
                                 const Array& lse, const ReadOnlyArray& sinks) {
    const View result("out", out), log("lse", lse), logits("sinks", sinks);
    result.require_dimensions(3, "[tokens, heads, head_dim]").require_contiguous();
    const Sizes& shape = result.shape();
    log.require_shape({shape[0], shape[1]}).require_contiguous();
    logits.require_shape({shape[1]}).require_contiguous();
    const SinkMemory memory{result.floats(), log.floats(), logits.floats(),
                            shape[0],        shape[1],     shape[2]};
    return std::make_unique<Task>(
        pool, std::vector<nb::object>{nb::cast(out), nb::cast(lse), nb::cast(sinks)},
        std::make_unique<SinkJob>(memory, pool->num_threads()));
}

}  // namespace

void bind_sinks(nb::module_& module) {
    module.def("apply_sinks", &sinks_task, "pool"_a, "out"_a.noconvert(), "lse"_a.noconvert(),
               "sinks"_a.noconvert());
}

}  // namespace tandem

#include "bind_copies.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <vector>

#include "arrays.hpp"
#include "copy_blocks.hpp"
#include "pool.hpp"
#include "task.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

std::unique_ptr<Task> copy_task(const std::shared_ptr<Pool>& pool, const ReadOnlyArray& source,
                                const ReadOnlyArray& source_ids, const Array& target,
                                const ReadOnlyArray& target_ids) {
    const View from("source", source), to("target", target);
    const View read("source_ids", source_ids), written("target_ids", target_ids);
    require(from.shape().size() > 2, "source must be [layers, num_blocks, ...]");
    from.require_contiguous();
    to.require_like(from, 2).require_contiguous();
    require(from.shape()[0] == to.shape()[0], "source and target must have as many layers");
    read.require_dimensions(1, "[blocks]").require_contiguous();
    written.require_dimensions(1, "[blocks]").require_contiguous();
    std::int64_t block_bytes = from.element_bytes();
    for (std::size_t i = 2; i < from.shape().size(); ++i) block_bytes *= from.shape()[i];
    const CopyMemory memory{.source = static_cast<const std::byte*>(from.data()),
                            .target = static_cast<std::byte*>(to.data()),
                            .source_blocks = from.shape()[1],
                            .target_blocks = to.shape()[1],
                            .layers = from.shape()[0],
                            .block_bytes = block_bytes,
                            .source_ids = read.longs(),
                            .target_ids = written.longs()};
    return std::make_unique<Task>(pool,
                                  std::vector<nb::object>{nb::cast(source), nb::cast(source_ids),
                                                          nb::cast(target), nb::cast(target_ids)},
                                  std::make_unique<CopyJob>(memory, pool->num_threads()));
}

}  // namespace

void bind_copies(nb::module_& module) {
    module.def("copy_blocks", &copy_task, "pool"_a, "source"_a.noconvert(),
               "source_ids"_a.noconvert(), "target"_a.noconvert(), "target_ids"_a.noconvert());
}

}  // namespace tandem

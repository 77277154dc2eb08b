#include "bind_sweep.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention.hpp"
#include "attention_arrays.hpp"
#include "host_sweep.hpp"
#include "isa.hpp"
#include "pages.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

using PlanPointer = std::shared_ptr<AttentionPlan>;

// Of each layer, its plan.
std::vector<PlanPointer> plans_of_layers(const std::vector<PlanPointer>& plans,
                                         const std::vector<int>& layer_plans) {
    require(!layer_plans.empty(), "a sweep needs layers");
    std::vector<PlanPointer> all;
    for (const int index : layer_plans) {
        require(index >= 0 && index < std::ssize(plans) && plans[index] != nullptr,
                "a layer names a plan that is not there");
        const AttentionShape& own = plans[index]->shape;
        const AttentionShape& first = plans[layer_plans.front()]->shape;
        require(own.block_size == first.block_size && own.code_bits == first.code_bits &&
                    own.kv_heads == first.kv_heads && own.head_dim == first.head_dim,
                "the plans are for different pages");
        all.push_back(plans[index]);
    }
    return all;
}

std::unique_ptr<HostSweep> make_sweep(const std::shared_ptr<Pool>& pool, const Array& pages,
                                      const std::vector<PlanPointer>& plans,
                                      const std::vector<int>& layer_plans, const ReadOnlyArray& q,
                                      const ReadOnlyArray& k, const ReadOnlyArray& v,
                                      const std::optional<ReadOnlyArray>& slots, const Array& out,
                                      const Array& lse, double scale, double soft_cap,
                                      const std::string& isa) {
    const View page("pages", pages), queries("q", q), keys("k", k), values("v", v);
    const View result("out", out), logs("lse", lse);
    const std::vector<PlanPointer> of_layers = plans_of_layers(plans, layer_plans);
    const AttentionShape& shape = of_layers.front()->shape;
    const DType type = check_layers_pages(page, shape, std::ssize(of_layers));
    const Isa chosen = choose_isa(isa);
    std::optional<View> slot;
    if (slots) slot.emplace("slots", *slots);
    std::vector<SweepLayer> layers;
    LayerPages own{page.data(), type, page.shape()[1]};
    for (const PlanPointer& plan : of_layers) {
        SweepLayer layer;
        if (slot)
            layer.append =
                std::make_unique<AppendJob>(check_append(shape, own, keys, values, *slot),
                                            pool->num_threads(), pool->buffers());
        layer.attend = std::make_unique<AttentionJob>(
            plan, check_attention(*plan, queries, own, result, logs, {}), static_cast<float>(scale),
            static_cast<float>(soft_cap), chosen, pool->buffers());
        layers.push_back(std::move(layer));
        own.data = static_cast<char*>(own.data) + page.stride() * page.element_bytes();
    }
    std::vector<nb::object> memory{nb::cast(pages), nb::cast(q),   nb::cast(k),  nb::cast(v),
                                   nb::cast(slots), nb::cast(out), nb::cast(lse)};
    return std::make_unique<HostSweep>(pool, std::move(memory), std::move(layers));
}

}  // namespace

void bind_sweep(nb::module_& module) {
    nb::class_<HostSweep>(module, "Sweep")
        .def("submit", &HostSweep::submit, "down"_a, "up"_a, "base"_a, "after"_a = Points{},
             "then"_a.none() = nb::none())
        .def("cancel", &HostSweep::cancel)
        .def("wait", &HostSweep::wait, "timeout_s"_a = nb::none())
        .def_prop_ro("spans_ns", &HostSweep::spans_ns);
    module.def("sweep", &make_sweep, "pool"_a, "pages"_a.noconvert(), "plans"_a, "layer_plans"_a,
               "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(),
               "slots"_a.noconvert().none(), "out"_a.noconvert(), "lse"_a.noconvert(), "scale"_a,
               "soft_cap"_a, "isa"_a);
}

}  // namespace tandem

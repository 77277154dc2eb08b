#include "bind_linear.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "dequantize.hpp"
#include "host_linear_weight.hpp"
#include "linear.hpp"
#include "pool.hpp"
#include "task.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

using PoolPointer = std::shared_ptr<Pool>;
using WeightPointer = std::shared_ptr<HostLinearWeight>;

std::unique_ptr<Task> linear_task(const PoolPointer& pool, const WeightPointer& weight,
                                  const ReadOnlyArray& x, const Array& y, LinearEnd end,
                                  Activation activation, const std::string& isa, bool rounds_x) {
    const LinearWeight& w = weight->view();
    const View input("x", x), output("y", y);
    input.require_dimensions(2, "[rows, inputs]").require_contiguous_entries();
    const std::int64_t rows = input.shape()[0];
    require(rows <= std::numeric_limits<int>::max(), "x has too many rows");
    input.require_shape({rows, w.inputs});
    output.require_shape({rows, end == LinearEnd::kGated ? w.outputs / 2 : w.outputs})
        .require_contiguous_entries();
    auto job = std::make_unique<LinearJob>(w,
                                           LinearCall{.x = input.floats(),
                                                      .x_stride = input.stride(),
                                                      .rows = static_cast<int>(rows),
                                                      .y = output.floats(),
                                                      .y_stride = output.stride(),
                                                      .end = end,
                                                      .activation = activation,
                                                      .rounds_x = rounds_x},
                                           choose_isa(isa), pool->num_threads(), pool->buffers());
    return std::make_unique<Task>(
        pool, std::vector<nb::object>{nb::cast(weight), nb::cast(x), nb::cast(y)}, std::move(job));
}

std::unique_ptr<Task> dequantize_task(const PoolPointer& pool, const WeightPointer& weight,
                                      const Array& out, const std::string& isa) {
    const LinearWeight& w = weight->view();
    const View target("out", out);
    target.require_shape({w.outputs, w.inputs}).require_contiguous();
    return std::make_unique<Task>(
        pool, std::vector<nb::object>{nb::cast(weight), nb::cast(out)},
        std::make_unique<DequantizeJob>(w, target.floats(), choose_isa(isa), pool->num_threads()));
}

}  // namespace

void bind_linear(nb::module_& module) {
    nb::enum_<LinearEnd>(module, "LinearEnd")
        .value("STORE", LinearEnd::kStore)
        .value("ADD", LinearEnd::kAdd)
        .value("GATED", LinearEnd::kGated)
        .value("ACTIVATE", LinearEnd::kActivate);
    nb::enum_<Activation>(module, "Activation")
        .value("NONE", Activation::kNone)
        .value("SILU", Activation::kSilu)
        .value("GELU", Activation::kGelu)
        .value("GELU_TANH", Activation::kGeluTanh)
        .value("RELU", Activation::kRelu);
    // Arrays are taken as they are: a converted copy would be read, or worse, written.
    nb::class_<HostLinearWeight>(module, "LinearWeight")
        .def(nb::init<const ReadOnlyArray&, const std::optional<ReadOnlyArray>&>(),
             "weight"_a.noconvert(), "bias"_a.noconvert().none() = nb::none())
        .def_static(
            "quantized",
            [](const ReadOnlyArray& q, int bits, const ReadOnlyArray& scales,
               const ReadOnlyArray& zeros, const std::optional<ReadOnlyArray>& bias) {
                return std::make_shared<HostLinearWeight>(q, bits, scales, zeros, bias);
            },
            "q"_a.noconvert(), "bits"_a, "scales"_a.noconvert(), "zeros"_a.noconvert(),
            "bias"_a.noconvert().none() = nb::none())
        .def_prop_ro("outputs", [](const HostLinearWeight& w) { return w.view().outputs; })
        .def_prop_ro("inputs", [](const HostLinearWeight& w) { return w.view().inputs; });
    module.def("linear", &linear_task, "pool"_a, "weight"_a, "x"_a.noconvert(), "y"_a.noconvert(),
               "end"_a, "activation"_a, "isa"_a, "rounds_x"_a = false);
    module.def("dequantize", &dequantize_task, "pool"_a, "weight"_a, "out"_a.noconvert(), "isa"_a);
}

}  // namespace tandem

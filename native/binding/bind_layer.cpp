#include "bind_layer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "host_layer.hpp"
#include "host_layer_stack.hpp"
#include "pool.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

using PoolPointer = std::shared_ptr<Pool>;
using DecodePointer = std::shared_ptr<AttentionPlan>;
using PrefillPointer = std::shared_ptr<PrefillPlan>;
using Optional = std::optional<ReadOnlyArray>;
using AnglePairs = std::vector<std::pair<ReadOnlyArray, ReadOnlyArray>>;
using PlanPairs = std::vector<std::pair<DecodePointer, PrefillPointer>>;

void pre(const HostLayer& layer, const PoolPointer& pool, const std::string& isa,
         const ReadOnlyArray& residual, const Optional& cos, const Optional& sin,
         const Array& qkv) {
    const View source("residual", residual), target("qkv", qkv);
    const std::int64_t tokens = layer.tokens_of(source);
    target.require_shape({tokens, layer.view().heads.token_elements()}).require_contiguous();
    const Rotation rotation = layer.rotation(cos, sin, tokens);
    const float* from = source.floats();
    float* to = target.floats();
    const Workers workers{*pool, choose_isa(isa)};
    nb::gil_scoped_release release;
    run_pre(workers, layer.view(), rotation, tokens, from, to);
}

void post(const HostLayer& layer, const PoolPointer& pool, const std::string& isa,
          const ReadOnlyArray& attention, const Array& residual) {
    const View source("attention", attention), target("residual", residual);
    const std::int64_t tokens = layer.tokens_of(target);
    source.require_shape({tokens, layer.view().output.inputs}).require_contiguous();
    const float* from = source.floats();
    float* to = target.floats();
    const Workers workers{*pool, choose_isa(isa)};
    nb::gil_scoped_release release;
    run_post(workers, layer.view(), tokens, from, to);
}

void mlp(const HostMlp& mlp, const PoolPointer& pool, const std::string& isa, const Array& residual,
         const Optional& experts, const Optional& shares) {
    const View target("residual", residual);
    const std::int64_t tokens = tokens_of(target, mlp.view().hidden());
    const Choices given = mlp.choices(experts, shares, tokens);
    float* in_place = target.floats();
    const Workers workers{*pool, choose_isa(isa)};
    nb::gil_scoped_release release;
    run_mlp(workers, mlp.view(), tokens, in_place, given);
}

void run_stack(const HostLayerStack& stack, const PoolPointer& pool, const std::string& isa,
               const Array& residual, const AnglePairs& angles, const Array& pages,
               const ReadOnlyArray& slots, const PlanPairs& plans, double scale, double soft_cap) {
    const View stream("residual", residual), page("pages", pages), slot("slots", slots);
    const std::int64_t tokens = stack.layer().tokens_of(stream);
    const std::vector<Rotation> rotations = stack.rotations(angles, tokens);
    std::vector<StepPlans> by_window;
    for (const auto& [decode, prefill] : plans) by_window.push_back({decode, prefill});
    const StepAttention attention =
        stack.attention({page, slot, std::move(by_window), scale, soft_cap}, tokens);
    float* in_place = stream.floats();
    const Workers workers{*pool, choose_isa(isa)};
    nb::gil_scoped_release release;
    run_layers(workers, stack.view(), rotations, attention, tokens, in_place, stack.reader());
}

void normalize_rows(const PoolPointer& pool, const HostNorm& norm, const ReadOnlyArray& x,
                    const Array& y) {
    const View source("x", x), target("y", y);
    source.require_dimensions(2, "[rows, size]").require_contiguous();
    const std::int64_t rows = source.shape()[0];
    source.require_shape({rows, norm.view().size});
    target.require_shape(source.shape()).require_contiguous();
    NormJob job(norm.view(), source.floats(), target.floats(), rows, pool->num_threads());
    nb::gil_scoped_release release;
    pool->run(job);
}

// Arrays are taken as they are: a converted copy would be read, or worse, written.
void bind_parts(nb::module_& module) {
    nb::class_<HostNorm>(module, "Norm")
        .def(nb::init<const ReadOnlyArray&, const Optional&, double>(), "weight"_a.noconvert(),
             "bias"_a.noconvert().none(), "epsilon"_a);
    nb::class_<HostExperts>(module, "Experts")
        .def(nb::init<LinearPointer, std::vector<LinearPointer>, std::vector<LinearPointer>, int,
                      bool, const Array&>(),
             "router"_a.none(), "ups"_a, "downs"_a, "per_token"_a, "renormalized"_a,
             "hits"_a.noconvert());
}

void bind_mlp(nb::module_& module) {
    nb::class_<HostMlp>(module, "Mlp")
        .def(
            "__init__",
            [](HostMlp* self, NormPointer norm, LinearPointer up, LinearPointer down,
               NormPointer post_norm, Activation activation, bool gated, bool int8_activations,
               ExpertsPointer experts) {
                new (self) HostMlp({.norm = std::move(norm),
                                    .up = std::move(up),
                                    .down = std::move(down),
                                    .experts = std::move(experts),
                                    .post_norm = std::move(post_norm),
                                    .activation = activation,
                                    .gated = gated,
                                    .int8_activations = int8_activations});
            },
            "norm"_a, "up"_a.none(), "down"_a.none(), "post_norm"_a.none(), "activation"_a,
            "gated"_a, "int8_activations"_a = false, "experts"_a.none() = nb::none())
        .def("run", &mlp, "pool"_a, "isa"_a, "residual"_a.noconvert(),
             "experts"_a.noconvert().none() = nb::none(),
             "shares"_a.noconvert().none() = nb::none());
}

void bind_whole_layer(nb::module_& module) {
    nb::class_<HostLayer>(module, "Layer")
        .def(
            "__init__",
            [](HostLayer* self, int heads, int kv_heads, int head_dim, NormPointer attention_norm,
               LinearPointer qkv, NormPointer query_norm, NormPointer key_norm,
               LinearPointer output, NormPointer post_attention_norm, NormPointer mlp_norm,
               LinearPointer up, LinearPointer down, NormPointer post_mlp_norm,
               Activation activation, bool gated, bool int8_activations, ExpertsPointer experts) {
                new (self) HostLayer({.heads = {heads, kv_heads, head_dim},
                                      .attention_norm = std::move(attention_norm),
                                      .qkv = std::move(qkv),
                                      .query_norm = std::move(query_norm),
                                      .key_norm = std::move(key_norm),
                                      .output = std::move(output),
                                      .post_attention_norm = std::move(post_attention_norm),
                                      .mlp = {.norm = std::move(mlp_norm),
                                              .up = std::move(up),
                                              .down = std::move(down),
                                              .experts = std::move(experts),
                                              .post_norm = std::move(post_mlp_norm),
                                              .activation = activation,
                                              .gated = gated,
                                              .int8_activations = int8_activations}});
            },
            "heads"_a, "kv_heads"_a, "head_dim"_a, "attention_norm"_a, "qkv"_a,
            "query_norm"_a.none(), "key_norm"_a.none(), "output"_a, "post_attention_norm"_a.none(),
            "mlp_norm"_a, "up"_a.none(), "down"_a.none(), "post_mlp_norm"_a.none(), "activation"_a,
            "gated"_a, "int8_activations"_a = false, "experts"_a.none() = nb::none())
        .def("pre", &pre, "pool"_a, "isa"_a, "residual"_a.noconvert(), "cos"_a.noconvert().none(),
             "sin"_a.noconvert().none(), "qkv"_a.noconvert())
        .def("post", &post, "pool"_a, "isa"_a, "attention"_a.noconvert(), "residual"_a.noconvert());
}

void bind_stack(nb::module_& module) {
    nb::class_<HostLayerStack>(module, "LayerStack")
        .def(nb::init<std::vector<std::shared_ptr<HostLayer>>, const std::vector<int>&,
                      const std::vector<int>&, std::shared_ptr<HostWeightReader>,
                      const std::vector<int>&>(),
             "layers"_a, "plans"_a, "rotations"_a, "reader"_a.none() = nb::none(),
             "read"_a = std::vector<int>())
        .def_prop_ro(
            "scratch_token_bytes",
            [](const HostLayerStack& self) { return layers_scratch(self.view()).token_bytes; })
        .def_prop_ro("scratch_bytes",
                     [](const HostLayerStack& self) { return layers_scratch(self.view()).bytes; })
        .def("run", &run_stack, "pool"_a, "isa"_a, "residual"_a.noconvert(),
             "rotations"_a.noconvert(), "pages"_a.noconvert(), "slots"_a.noconvert(), "plans"_a,
             "scale"_a, "soft_cap"_a = 0.0);
}

}  // namespace

void bind_layer(nb::module_& module) {
    bind_parts(module);
    bind_mlp(module);
    bind_whole_layer(module);
    bind_stack(module);
    module.def("normalize", &normalize_rows, "pool"_a, "norm"_a, "x"_a.noconvert(),
               "y"_a.noconvert());
}

}  // namespace tandem

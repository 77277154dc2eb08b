#include "bind_layer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "host_layer.hpp"
#include "pool.hpp"

namespace tandem {
namespace {

using namespace nb::literals;

using PoolPointer = std::shared_ptr<Pool>;
using PlanPointer = std::shared_ptr<AttentionPlan>;
using Angles = std::optional<ReadOnlyArray>;

void pre(const HostLayer& layer, const PoolPointer& pool, const std::string& isa,
         const ReadOnlyArray& residual, const Angles& cos, const Angles& sin, const Array& qkv) {
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

void whole(const HostLayer& layer, const PoolPointer& pool, const std::string& isa,
           const Array& residual, const Angles& cos, const Angles& sin, const Array& pages,
           const ReadOnlyArray& slots, const PlanPointer& plan, double scale, double soft_cap) {
    const View stream("residual", residual), page("pages", pages), slot("slots", slots);
    const std::int64_t tokens = layer.tokens_of(stream);
    const Rotation rotation = layer.rotation(cos, sin, tokens);
    const LayerAttention attention = layer.attention({page, slot, plan, scale, soft_cap}, tokens);
    float* in_place = stream.floats();
    const Workers workers{*pool, choose_isa(isa)};
    nb::gil_scoped_release release;
    run_layer(workers, layer.view(), rotation, attention, tokens, in_place);
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

}  // namespace

void bind_layer(nb::module_& module) {
    // Arrays are taken as they are: a converted copy would be read, or worse, written.
    nb::class_<HostNorm>(module, "Norm")
        .def(nb::init<const ReadOnlyArray&, const Angles&, double>(), "weight"_a.noconvert(),
             "bias"_a.noconvert().none(), "epsilon"_a);
    nb::class_<HostLayer>(module, "Layer")
        .def(
            "__init__",
            [](HostLayer* self, int heads, int kv_heads, int head_dim, NormPointer attention_norm,
               LinearPointer qkv, NormPointer query_norm, NormPointer key_norm,
               LinearPointer output, NormPointer post_attention_norm, NormPointer mlp_norm,
               LinearPointer up, LinearPointer down, NormPointer post_mlp_norm,
               Activation activation, bool gated) {
                new (self) HostLayer({.heads = {heads, kv_heads, head_dim},
                                      .attention_norm = std::move(attention_norm),
                                      .qkv = std::move(qkv),
                                      .query_norm = std::move(query_norm),
                                      .key_norm = std::move(key_norm),
                                      .output = std::move(output),
                                      .post_attention_norm = std::move(post_attention_norm),
                                      .mlp_norm = std::move(mlp_norm),
                                      .up = std::move(up),
                                      .down = std::move(down),
                                      .post_mlp_norm = std::move(post_mlp_norm),
                                      .activation = activation,
                                      .gated = gated});
            },
            "heads"_a, "kv_heads"_a, "head_dim"_a, "attention_norm"_a, "qkv"_a,
            "query_norm"_a.none(), "key_norm"_a.none(), "output"_a, "post_attention_norm"_a.none(),
            "mlp_norm"_a, "up"_a, "down"_a, "post_mlp_norm"_a.none(), "activation"_a, "gated"_a)
        .def("pre", &pre, "pool"_a, "isa"_a, "residual"_a.noconvert(), "cos"_a.noconvert().none(),
             "sin"_a.noconvert().none(), "qkv"_a.noconvert())
        .def("post", &post, "pool"_a, "isa"_a, "attention"_a.noconvert(), "residual"_a.noconvert())
        .def("run", &whole, "pool"_a, "isa"_a, "residual"_a.noconvert(), "cos"_a.noconvert().none(),
             "sin"_a.noconvert().none(), "pages"_a.noconvert(), "slots"_a.noconvert(), "plan"_a,
             "scale"_a, "soft_cap"_a = 0.0);
    module.def("normalize", &normalize_rows, "pool"_a, "norm"_a, "x"_a.noconvert(),
               "y"_a.noconvert());
}

}  // namespace tandem

#include "host_layer.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "pages.hpp"

namespace tandem {
namespace {

Norm view_of(const NormPointer& norm) { return norm ? norm->view() : Norm{}; }

const float* weight_of(const NormPointer& norm) { return norm ? norm->view().weight : nullptr; }

LinearWeight view_of(const LinearPointer& weight) {
    return weight ? weight->view() : LinearWeight{};
}

void require_size(const std::string& name, const NormPointer& norm, int expected) {
    require(!norm || norm->view().size == expected,
            name + " must have the size " + std::to_string(expected));
}

void require_matrix(const std::string& name, const LinearWeight& weight, int outputs, int inputs) {
    const auto text = [](int rows, int columns) {
        return std::to_string(rows) + " x " + std::to_string(columns);
    };
    require(weight.outputs == outputs && weight.inputs == inputs,
            name + " must be " + text(outputs, inputs) + ", not " +
                text(weight.outputs, weight.inputs));
}

const float* angles(const char* name, const ReadOnlyArray& array, std::int64_t tokens,
                    int head_dim) {
    const View view(name, array);
    view.require_shape({tokens, head_dim}).require_contiguous();
    return view.floats();
}

MlpWeights mlp_of(const MlpParts& parts) {
    return {.norm = parts.norm->view(),
            .up = view_of(parts.up),
            .down = view_of(parts.down),
            .experts = parts.experts ? &parts.experts->view() : nullptr,
            .post_norm = view_of(parts.post_norm),
            .activation = parts.activation,
            .gated = parts.gated,
            .rounds_x = parts.int8_activations};
}

void check_rounding(bool rounds_x, const LinearWeight& map) {
    require(!rounds_x || map.type == WeightType::kInt8,
            "activations are rounded for maps of 8 bits only");
}

void check_mlp(const MlpParts& parts, const MlpWeights& mlp, int hidden) {
    require_size("mlp_norm", parts.norm, hidden);
    require_size("post_mlp_norm", parts.post_norm, hidden);
    require(parts.up && parts.down ? !parts.experts : parts.experts && !parts.up && !parts.down,
            "a layer needs either up and down, or experts");
    if (mlp.experts) {
        require(mlp.gated && !parts.post_norm, "experts are gated, and have no norm after");
        require(mlp.experts->hidden == hidden, "experts and norm must have the same size");
        for (const ExpertWeights& expert : mlp.experts->weights) {
            if (!expert.here()) continue;
            check_rounding(mlp.rounds_x, expert.up);
            check_rounding(mlp.rounds_x, expert.down);
        }
        return;
    }
    const int inner = mlp.intermediate();
    require_matrix("up", mlp.up, mlp.gated ? 2 * inner : inner, hidden);
    require_matrix("down", mlp.down, hidden, inner);
    check_rounding(mlp.rounds_x, mlp.up);
    check_rounding(mlp.rounds_x, mlp.down);
}

}  // namespace

HostNorm::HostNorm(const ReadOnlyArray& weight, const std::optional<ReadOnlyArray>& bias,
                   double epsilon)
    : memory_{nb::cast(weight)} {
    const View scale("weight", weight);
    scale.require_dimensions(1, "[size]").require_contiguous();
    view_ = {.weight = scale.floats(),
             .bias = nullptr,
             .epsilon = static_cast<float>(epsilon),
             .size = static_cast<int>(scale.shape()[0])};
    if (!bias) return;
    const View shift("bias", *bias);
    view_.bias = shift.require_shape(scale.shape()).require_contiguous().floats();
    memory_.push_back(nb::cast(*bias));
}

HostExperts::HostExperts(LinearPointer router, std::vector<LinearPointer> ups,
                         std::vector<LinearPointer> downs, int per_token, bool renormalized,
                         const Array& hits)
    : router_(std::move(router)),
      ups_(std::move(ups)),
      downs_(std::move(downs)),
      hits_(nb::cast(hits)) {
    require(ups_.size() == downs_.size(), "every expert needs an up and a down");
    const LinearWeight* first = nullptr;
    for (std::size_t i = 0; i < downs_.size(); ++i) {
        require(!ups_[i] == !downs_[i], "every expert needs an up and a down");
        if (downs_[i] && !first) first = &downs_[i]->view();
    }
    require(first, "at least one expert must be here");
    const int experts = static_cast<int>(ups_.size());
    const int hidden = first->outputs, inner = first->inputs;
    require(per_token > 0 && per_token <= experts, "a token needs experts, and not more than all");
    if (router_) require_matrix("router", router_->view(), experts, hidden);
    for (std::size_t i = 0; i < ups_.size(); ++i) {
        weights_.push_back({view_of(ups_[i]), view_of(downs_[i])});
        if (!ups_[i]) continue;
        require_matrix("up", ups_[i]->view(), 2 * inner, hidden);
        require_matrix("down", downs_[i]->view(), hidden, inner);
    }
    const View counts("hits", hits);
    std::int64_t* counted = counts.require_shape({experts}).require_contiguous().longs().data();
    view_ = {.router = view_of(router_),
             .weights = weights_,
             .hidden = hidden,
             .intermediate = inner,
             .per_token = per_token,
             .renormalized = renormalized,
             .hits = counted};
}

bool HostExperts::is_whole() const {
    const auto here = [](const ExpertWeights& expert) { return expert.here(); };
    return router_ && std::all_of(weights_.begin(), weights_.end(), here);
}

Choices HostExperts::choices(const std::optional<ReadOnlyArray>& experts,
                             const std::optional<ReadOnlyArray>& shares,
                             std::int64_t tokens) const {
    require(experts.has_value() == shares.has_value(), "experts and shares go together");
    require(experts || is_whole(), "without a router or some experts, choices must be given");
    if (!experts) return {};
    const View chosen("experts", *experts), weights("shares", *shares);
    chosen.require_shape({tokens, view_.per_token}).require_contiguous();
    weights.require_shape({tokens, view_.per_token}).require_contiguous();
    const std::span<const std::int64_t> ids = chosen.longs();
    const auto exists = [&](std::int64_t id) { return id >= 0 && id < std::ssize(weights_); };
    require(std::all_of(ids.begin(), ids.end(), exists), "experts must exist");
    return {ids.data(), weights.floats()};
}

HostMlp::HostMlp(MlpParts parts) : parts_(std::move(parts)), view_(mlp_of(parts_)) {
    check_mlp(parts_, view_, view_.hidden());
}

Choices HostMlp::choices(const std::optional<ReadOnlyArray>& experts,
                         const std::optional<ReadOnlyArray>& shares, std::int64_t tokens) const {
    if (parts_.experts) return parts_.experts->choices(experts, shares, tokens);
    require(!experts && !shares, "there are no experts to choose");
    return {};
}

HostLayer::HostLayer(LayerParts parts)
    : parts_(std::move(parts)),
      view_{.attention_norm = parts_.attention_norm->view(),
            .qkv = parts_.qkv->view(),
            .heads = parts_.heads,
            .query_norm = weight_of(parts_.query_norm),
            .key_norm = weight_of(parts_.key_norm),
            .output = parts_.output->view(),
            .post_attention_norm = view_of(parts_.post_attention_norm),
            .mlp_norm = parts_.mlp.norm->view(),
            .up = view_of(parts_.mlp.up),
            .down = view_of(parts_.mlp.down),
            .experts = parts_.mlp.experts ? &parts_.mlp.experts->view() : nullptr,
            .post_mlp_norm = view_of(parts_.mlp.post_norm),
            .activation = parts_.mlp.activation,
            .gated = parts_.mlp.gated,
            .rounds_x = parts_.mlp.int8_activations} {
    check();
}

void HostLayer::check() const {
    const HeadShape& heads = view_.heads;
    const int hidden = view_.hidden();
    require(heads.heads > 0 && heads.kv_heads > 0 && heads.head_dim > 0, "a layer needs heads");
    require_size("attention_norm", parts_.attention_norm, hidden);
    require_size("post_attention_norm", parts_.post_attention_norm, hidden);
    require_size("query_norm", parts_.query_norm, heads.head_dim);
    require_size("key_norm", parts_.key_norm, heads.head_dim);
    require_matrix("qkv", view_.qkv, static_cast<int>(heads.token_elements()), hidden);
    require_matrix("output", view_.output, hidden, heads.heads * heads.head_dim);
    check_rounding(view_.rounds_x, view_.qkv);
    check_rounding(view_.rounds_x, view_.output);
    check_mlp(parts_.mlp, view_.mlp(), hidden);
    require(!parts_.mlp.experts || parts_.mlp.experts->is_whole(),
            "a whole layer needs its router and all of its experts");
}

std::int64_t tokens_of(const View& residual, int hidden) {
    residual.require_dimensions(2, "[tokens, hidden]").require_contiguous();
    const std::int64_t tokens = residual.shape()[0];
    residual.require_shape({tokens, hidden});
    require(tokens > 0, "residual must have tokens");
    return tokens;
}

Rotation HostLayer::rotation(const std::optional<ReadOnlyArray>& cos,
                             const std::optional<ReadOnlyArray>& sin, std::int64_t tokens) const {
    require(cos.has_value() == sin.has_value(), "cos and sin go together");
    if (!cos) return {};
    const int dim = view_.heads.head_dim;
    require(dim % 2 == 0, "head_dim must be even to be rotated");
    return {angles("cos", *cos, tokens, dim), angles("sin", *sin, tokens, dim)};
}

}  // namespace tandem

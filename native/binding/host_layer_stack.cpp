#include "host_layer_stack.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "pages.hpp"

namespace tandem {
namespace {

// Of indices that are used, the number of things that they choose from.
std::size_t count_named(const std::string& name, const std::vector<int>& indices,
                        std::size_t layers) {
    require(indices.size() == layers, name + " must have an entry per layer");
    const auto [low, high] = std::ranges::minmax(indices);
    require(low >= 0, name + " must not be negative");
    return static_cast<std::size_t>(high) + 1;
}

void require_enough(const std::string& name, std::size_t found, std::size_t needed) {
    require(found >= needed, "the layers take " + std::to_string(needed) + " different " + name +
                                 ", not " + std::to_string(found));
}

}  // namespace

HostLayerStack::HostLayerStack(std::vector<std::shared_ptr<HostLayer>> layers,
                               const std::vector<int>& plans, const std::vector<int>& rotations,
                               std::shared_ptr<HostWeightReader> reader,
                               const std::vector<int>& read)
    : layers_(std::move(layers)), reader_(std::move(reader)) {
    require(!layers_.empty() && std::ranges::find(layers_, nullptr) == layers_.end(),
            "a stack needs layers");
    num_plans_ = count_named("plans", plans, layers_.size());
    num_rotations_ = count_named("rotations", rotations, layers_.size());
    const LayerWeights& first = layer().view();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& weights = layers_[i]->view();
        require(weights.hidden() == first.hidden() && weights.heads == first.heads,
                "layers of a stack must agree in hidden size and heads");
        view_.push_back({weights, plans[i], rotations[i]});
    }
    require(read.size() == (reader_ ? static_cast<std::size_t>(reader_->reader().num_layers()) : 0),
            "a stack reads the very layers of its reader");
    require(std::ranges::is_sorted(read, std::ranges::less_equal{}) &&
                (read.empty() || (read.front() >= 0 && read.back() < std::ssize(view_))),
            "layers to read must be the stack's, in ascending order");
    for (std::size_t i = 0; i < read.size(); ++i)
        view_[static_cast<std::size_t>(read[i])].read = static_cast<int>(i);
}

std::vector<Rotation> HostLayerStack::rotations(
    const std::vector<std::pair<ReadOnlyArray, ReadOnlyArray>>& angles, std::int64_t tokens) const {
    if (angles.empty()) return std::vector<Rotation>(num_rotations_);
    require_enough("rotations", angles.size(), num_rotations_);
    std::vector<Rotation> all;
    for (const auto& [cos, sin] : angles) all.push_back(layer().rotation(cos, sin, tokens));
    return all;
}

void HostLayerStack::check_plan(const AttentionRows& rows, const AttentionShape& shape) const {
    const HeadShape& heads = layer().view().heads;
    require(rows.shape.heads == heads.heads && rows.shape.kv_heads == heads.kv_heads &&
                rows.shape.head_dim == heads.head_dim,
            "the plan is for other heads than the layers'");
    require(rows.num_queries_needed <= rows.num_tokens, "the plan must not select tokens");
    require(rows.shape.block_size == shape.block_size && rows.shape.code_bits == shape.code_bits,
            "the plans are for different pages");
}

void HostLayerStack::check_plans(const StepPlans& plans, const AttentionShape& shape,
                                 std::int64_t tokens) const {
    if (plans.decode) check_plan(*plans.decode, shape);
    if (plans.prefill) check_plan(*plans.prefill, shape);
    require(plans.tokens() == tokens, "the plans are for " + std::to_string(plans.tokens()) +
                                          " tokens, not " + std::to_string(tokens));
}

StepAttention HostLayerStack::attention(const StepArrays& arrays, std::int64_t tokens) const {
    require_enough("plans", arrays.plans.size(), num_plans_);
    for (const StepPlans& plans : arrays.plans)
        require(plans.decode || plans.prefill, "a step needs a plan");
    const AttentionShape& shape = arrays.plans.front().rows().shape;
    for (const StepPlans& plans : arrays.plans) check_plans(plans, shape, tokens);
    const View& pages = arrays.pages;
    return {.plans = arrays.plans,
            .slots = arrays.slots.require_shape({tokens}).require_contiguous().longs(),
            .pages = pages.data(),
            .layer_bytes = pages.stride() * pages.element_bytes(),
            .page_type = check_layers_pages(pages, shape, static_cast<std::int64_t>(view_.size())),
            .num_blocks = pages.shape()[1],
            .scale = static_cast<float>(arrays.scale),
            .soft_cap = static_cast<float>(arrays.soft_cap)};
}

}  // namespace tandem

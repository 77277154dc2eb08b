#include "host_layer_stack.hpp"

#include <string>
#include <utility>

#include "pages.hpp"

namespace tandem {

HostLayerStack::HostLayerStack(std::vector<std::shared_ptr<HostLayer>> layers)
    : layers_(std::move(layers)) {
    require(!layers_.empty(), "a stack needs layers");
    const LayerWeights& first = layers_.front()->view();
    for (const auto& layer : layers_) {
        const LayerWeights& weights = layer->view();
        require(weights.hidden() == first.hidden() && weights.heads == first.heads,
                "layers of a stack must agree in hidden size and heads");
        weights_.push_back(weights);
    }
}

void HostLayerStack::check_plan(const AttentionRows& rows) const {
    const HeadShape& heads = layer().view().heads;
    require(rows.shape.heads == heads.heads && rows.shape.kv_heads == heads.kv_heads &&
                rows.shape.head_dim == heads.head_dim,
            "the plan is for other heads than the layers'");
    require(rows.num_queries_needed <= rows.num_tokens, "the plan must not select tokens");
}

StepAttention HostLayerStack::attention(const StepArrays& arrays, std::int64_t tokens) const {
    require(arrays.decode || arrays.prefill, "a step needs a plan");
    if (arrays.decode) check_plan(*arrays.decode);
    if (arrays.prefill) check_plan(*arrays.prefill);
    StepAttention step{.decode = arrays.decode,
                       .prefill = arrays.prefill,
                       .slots = {},
                       .pages = arrays.pages.data(),
                       .layer_bytes = 0,
                       .page_type = {},
                       .num_blocks = 0,
                       .scale = static_cast<float>(arrays.scale),
                       .soft_cap = static_cast<float>(arrays.soft_cap)};
    const AttentionShape& shape = step.rows().shape;
    require(!arrays.prefill || (arrays.prefill->shape.block_size == shape.block_size &&
                                arrays.prefill->shape.code_bits == shape.code_bits),
            "the plans are for different pages");
    const std::int64_t planned =
        step.decode_tokens() + (arrays.prefill ? arrays.prefill->num_tokens : 0);
    require(planned == tokens, "the plans are for " + std::to_string(planned) + " tokens, not " +
                                   std::to_string(tokens));
    step.slots = arrays.slots.require_shape({tokens}).require_contiguous().longs();
    const View& pages = arrays.pages;
    step.page_type = check_layers_pages(pages, shape, static_cast<std::int64_t>(layers_.size()));
    step.num_blocks = pages.shape()[1];
    step.layer_bytes = pages.stride() * pages.element_bytes();
    return step;
}

}  // namespace tandem

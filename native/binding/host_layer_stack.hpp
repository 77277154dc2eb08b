// All layers of a model over weights in arrays of Python, as one call per step.
#pragma once

#include <memory>
#include <vector>

#include "arrays.hpp"
#include "host_layer.hpp"
#include "layer_stack.hpp"

namespace tandem {

// What a step's attention reads and writes, in arrays of Python.
struct StepArrays {
    const View& pages;                            // [layers, num_blocks, ...]
    const View& slots;                            // [tokens]
    std::shared_ptr<const AttentionPlan> decode;  // may be null, but not both
    std::shared_ptr<const PrefillPlan> prefill;
    double scale;
    double soft_cap;
};

class HostLayerStack {
  public:
    // Throws std::invalid_argument for no layers, or layers that differ in hidden size or heads.
    explicit HostLayerStack(std::vector<std::shared_ptr<HostLayer>> layers);

    // What the checks of a step's arrays are made against.
    const HostLayer& layer() const { return *layers_.front(); }
    const std::vector<LayerWeights>& weights() const { return weights_; }

    // Throws std::invalid_argument for arrays and plans that do not fit the layers or the tokens.
    StepAttention attention(const StepArrays& arrays, std::int64_t tokens) const;

  private:
    void check_plan(const AttentionRows& rows) const;

    std::vector<std::shared_ptr<HostLayer>> layers_;
    std::vector<LayerWeights> weights_;
};

}  // namespace tandem

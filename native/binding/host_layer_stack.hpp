// All layers of a model over weights in arrays of Python, as one call per step.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "host_layer.hpp"
#include "host_weight_reader.hpp"
#include "layer_stack.hpp"

namespace tandem {

// What a step's attention reads and writes, in arrays of Python.
struct StepArrays {
    const View& pages;             // [layers, num_blocks, ...]
    const View& slots;             // [tokens]
    std::vector<StepPlans> plans;  // as many as the layers name
    double scale;
    double soft_cap;
};

class HostLayerStack {
  public:
    // plans, rotations: of each layer, which of a step's it takes.
    // read: the layers that `reader` reads, in order of its circle.
    // Throws std::invalid_argument for no layers, layers that differ in hidden size or heads,
    // other than one entry per layer, or layers to read that are not the reader's.
    HostLayerStack(std::vector<std::shared_ptr<HostLayer>> layers, const std::vector<int>& plans,
                   const std::vector<int>& rotations, std::shared_ptr<HostWeightReader> reader,
                   const std::vector<int>& read);

    // What the checks of a step's arrays are made against.
    const HostLayer& layer() const { return *layers_.front(); }
    const std::vector<StackLayer>& view() const { return view_; }
    WeightReader* reader() const { return reader_ ? &reader_->reader() : nullptr; }

    // As many as the layers name; none: nothing is rotated.
    std::vector<Rotation> rotations(
        const std::vector<std::pair<ReadOnlyArray, ReadOnlyArray>>& angles,
        std::int64_t tokens) const;

    // Throws std::invalid_argument for arrays and plans that do not fit the layers or the tokens.
    StepAttention attention(const StepArrays& arrays, std::int64_t tokens) const;

  private:
    void check_plan(const AttentionRows& rows, const AttentionShape& shape) const;
    void check_plans(const StepPlans& plans, const AttentionShape& shape,
                     std::int64_t tokens) const;

    std::vector<std::shared_ptr<HostLayer>> layers_;
    std::shared_ptr<HostWeightReader> reader_;
    std::vector<StackLayer> view_;
    std::size_t num_plans_ = 0;
    std::size_t num_rotations_ = 0;
};

}  // namespace tandem

// All layers of a model in one call, over pages in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention_plan.hpp"
#include "dtype.hpp"
#include "layer.hpp"
#include "prefill_plan.hpp"
#include "weight_reader.hpp"

namespace tandem {

struct StackLayer {
    LayerWeights weights;
    int plans = 0;     // which of the step's
    int rotation = 0;  // likewise
    int read = -1;     // its matrices are read: which of the reader's circle; -1: they are there
};

// Who attends to what in the layers that share a window; at least one of the plans is there.
struct StepPlans {
    std::shared_ptr<const AttentionPlan> decode;  // of the first tokens; null: there are none
    std::shared_ptr<const PrefillPlan> prefill;   // of the tokens after those; null: likewise

    const AttentionRows& rows() const {
        return decode ? static_cast<const AttentionRows&>(*decode) : *prefill;
    }
    std::int64_t decode_tokens() const { return decode ? decode->num_tokens : 0; }
    std::int64_t tokens() const { return decode_tokens() + (prefill ? prefill->num_tokens : 0); }
};

// What the attention of one step reads and writes.
struct StepAttention {
    std::vector<StepPlans> plans;         // all for the same tokens and pages
    std::span<const std::int64_t> slots;  // [tokens]; of their keys and values
    void* pages;  // of the first layer: [num_blocks, 2, kv_heads, block_size, head_dim], or as
                  // in QuantizedPage
    std::int64_t layer_bytes;  // from a layer's pages to the next one's
    DType page_type;
    std::int64_t num_blocks;
    float scale;
    float soft_cap;
};

// Of each layer: `run_pre`, append, attention, `run_post`.
//
// residual: [tokens, hidden], changed in place.
// reader: of the layers that are read; addresses of their matrices are for its first slot.
// Throws std::invalid_argument, before anything is written, for slots or blocks that do not exist,
// and std::runtime_error for weights that cannot be read.
void run_layers(const Workers& workers, std::span<const StackLayer> layers,
                std::span<const Rotation> rotations, const StepAttention& attention,
                std::int64_t tokens, float* residual, WeightReader* reader = nullptr);

// What `run_layers` takes beside its arguments while it runs.
struct LayerScratch {
    std::int64_t token_bytes;
    std::int64_t bytes;  // whatever the number of tokens
};
LayerScratch layers_scratch(std::span<const StackLayer> layers);

}  // namespace tandem

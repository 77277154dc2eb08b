// A decoder layer over weights in arrays of Python, checked once and used by many calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "host_linear_weight.hpp"
#include "layer.hpp"

namespace tandem {

// Keeps its arrays alive.
class HostNorm {
  public:
    // float32 [size] each; a layer norm if there is a bias, else root mean square.
    HostNorm(const ReadOnlyArray& weight, const std::optional<ReadOnlyArray>& bias, double epsilon);

    const Norm& view() const { return view_; }

  private:
    Norm view_{};
    std::vector<nb::object> memory_;
};

using NormPointer = std::shared_ptr<HostNorm>;
using LinearPointer = std::shared_ptr<HostLinearWeight>;

// Keeps its weights alive.
class HostExperts {
  public:
    // router: null if every call says where tokens go.
    // ups, downs: of each expert, gate and up stacked, and down; both null if another device
    // computes it.
    // hits: int64 [experts], of tokens that went to them.
    // Throws std::invalid_argument for shapes that do not fit each other, or no expert.
    HostExperts(LinearPointer router, std::vector<LinearPointer> ups,
                std::vector<LinearPointer> downs, int per_token, bool renormalized,
                const Array& hits);
    HostExperts(const HostExperts&) = delete;
    HostExperts& operator=(const HostExperts&) = delete;

    const Experts& view() const { return view_; }

    // There is a router, and no expert is elsewhere.
    bool is_whole() const;

    // Of `tokens` tokens; both or none. Throws std::invalid_argument for experts that do not exist,
    // or if none are given although there is no router.
    Choices choices(const std::optional<ReadOnlyArray>& experts,
                    const std::optional<ReadOnlyArray>& shares, std::int64_t tokens) const;

  private:
    LinearPointer router_;
    std::vector<LinearPointer> ups_, downs_;
    std::vector<ExpertWeights> weights_;
    nb::object hits_;
    Experts view_;
};

using ExpertsPointer = std::shared_ptr<HostExperts>;

struct MlpParts {
    NormPointer norm;
    LinearPointer up;  // null, as is:
    LinearPointer down;
    ExpertsPointer experts;  // if there are these; else null
    NormPointer post_norm;   // may be null
    Activation activation;
    bool gated;
    bool int8_activations = false;  // only with maps of 8 bits
};

// A layer's end without its beginning: norm, and MLP or experts.
class HostMlp {
  public:
    // Throws std::invalid_argument for parts that do not fit each other.
    explicit HostMlp(MlpParts parts);

    const MlpWeights& view() const { return view_; }

    // Of experts, see HostExperts; without experts none may be given.
    Choices choices(const std::optional<ReadOnlyArray>& experts,
                    const std::optional<ReadOnlyArray>& shares, std::int64_t tokens) const;

  private:
    MlpParts parts_;
    MlpWeights view_;
};

struct LayerParts {
    HeadShape heads;
    NormPointer attention_norm;
    LinearPointer qkv;
    NormPointer query_norm;  // may be null
    NormPointer key_norm;
    LinearPointer output;
    NormPointer post_attention_norm;  // may be null
    MlpParts mlp;
};

// Of a residual [tokens, hidden]. Throws std::invalid_argument for another shape, or no tokens.
std::int64_t tokens_of(const View& residual, int hidden);

class HostLayer {
  public:
    // Throws std::invalid_argument for parts that do not fit each other.
    explicit HostLayer(LayerParts parts);

    const LayerWeights& view() const { return view_; }

    std::int64_t tokens_of(const View& residual) const {
        return tandem::tokens_of(residual, view_.hidden());
    }

    // Of as many tokens; both or none.
    Rotation rotation(const std::optional<ReadOnlyArray>& cos,
                      const std::optional<ReadOnlyArray>& sin, std::int64_t tokens) const;

  private:
    void check() const;

    LayerParts parts_;
    LayerWeights view_;
};

}  // namespace tandem

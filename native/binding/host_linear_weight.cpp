#include "host_linear_weight.hpp"

#include <limits>
#include <string>

namespace tandem {
namespace {

int dimension(const std::string& name, std::int64_t size) {
    require(size > 0 && size <= std::numeric_limits<int>::max(),
            name + " must be 1 to 2^31 - 1, not " + std::to_string(size));
    return static_cast<int>(size);
}

WeightType weight_type(DType type) {
    switch (type) {
        case DType::kFloat16:
            return WeightType::kFloat16;
        case DType::kBFloat16:
            return WeightType::kBFloat16;
        default:
            return WeightType::kFloat32;
    }
}

}  // namespace

HostLinearWeight::HostLinearWeight(const ReadOnlyArray& weight,
                                   const std::optional<ReadOnlyArray>& bias)
    : memory_{nb::cast(weight)} {
    const View view("weight", weight);
    view.require_dimensions(2, "[outputs, inputs]").require_contiguous();
    view_.data = view.data();
    view_.type = weight_type(view.float_type());
    view_.outputs = dimension("outputs", view.shape()[0]);
    view_.inputs = dimension("inputs", view.shape()[1]);
    set_bias(bias);
}

HostLinearWeight::HostLinearWeight(const ReadOnlyArray& q, int bits, const ReadOnlyArray& scales,
                                   const ReadOnlyArray& zeros,
                                   const std::optional<ReadOnlyArray>& bias)
    : memory_{nb::cast(q), nb::cast(scales), nb::cast(zeros)} {
    require(bits == 4 || bits == 8, "bits must be 4 or 8, not " + std::to_string(bits));
    const View codes("q", q), scale("scales", scales), zero("zeros", zeros);
    codes.require_dimensions(2, "[outputs, packed inputs]").require_contiguous();
    scale.require_dimensions(2, "[outputs, groups]").require_contiguous();
    const std::int64_t groups = scale.shape()[1];
    view_.data = codes.bytes();
    view_.type = bits == 4 ? WeightType::kInt4 : WeightType::kInt8;
    view_.outputs = dimension("outputs", codes.shape()[0]);
    view_.inputs = dimension("inputs", codes.shape()[1] * (8 / bits));
    scale.require_shape({view_.outputs, groups});
    zero.require_shape(scale.shape()).require_contiguous();
    view_.scales = scale.halves();
    view_.zeros = zero.bytes();
    view_.group = groups > 0 ? static_cast<int>(view_.inputs / groups) : 0;
    const bool known = view_.group == 32 || view_.group == 64 || view_.group == 128;
    require(known && view_.inputs == groups * view_.group,
            "groups must be of 32, 64 or 128 inputs: " + std::to_string(view_.inputs) +
                " inputs have " + std::to_string(groups) + " scales");
    set_bias(bias);
}

void HostLinearWeight::set_bias(const std::optional<ReadOnlyArray>& bias) {
    if (!bias) return;
    const View view("bias", *bias);
    view.require_shape({view_.outputs}).require_contiguous();
    view_.bias = view.floats();
    memory_.push_back(nb::cast(*bias));
}

}  // namespace tandem

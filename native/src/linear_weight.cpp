#include "linear_weight.hpp"

#include "require.hpp"

namespace tandem {

std::int64_t weight_bytes(WeightType type, int elements) {
    switch (type) {
        case WeightType::kFloat32:
            return std::int64_t{elements} * 4;
        case WeightType::kFloat16:
        case WeightType::kBFloat16:
            return std::int64_t{elements} * 2;
        case WeightType::kInt8:
            break;
        case WeightType::kInt4:
            return elements / 2;
    }
    return elements;
}

const LinearWeight& checked_weight(const LinearWeight& w) {
    require(w.outputs > 0 && w.inputs > 0, "a weight must have outputs and inputs");
    require(w.data != nullptr, "a weight must have data");
    if (!is_quantized(w.type)) return w;
    require(w.group == 32 || w.group == 64 || w.group == 128, "groups must be of 32, 64 or 128");
    require(w.inputs % w.group == 0, "inputs must be a multiple of the group");
    require(w.scales && w.zeros, "quantized weights must have scales and zeros");
    return w;
}

WeightRows weight_rows(const LinearWeight& weight, int first, int count) {
    const std::int64_t row_bytes = weight_bytes(weight.type, weight.inputs);
    WeightRows rows{};
    rows.data = static_cast<const char*>(weight.data) + first * row_bytes;
    rows.row_bytes = row_bytes;
    rows.inputs = weight.inputs;
    rows.count = count;
    if (!is_quantized(weight.type)) return rows;
    rows.group = weight.group;
    rows.groups = weight.inputs / weight.group;
    rows.scales = weight.scales + std::int64_t{first} * rows.groups;
    rows.zeros = weight.zeros + std::int64_t{first} * rows.groups;
    return rows;
}

}  // namespace tandem

#include "linear_weight.hpp"

#include <stdexcept>

namespace tandem {
namespace {

void check(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

}  // namespace

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
    check(w.outputs > 0 && w.inputs > 0, "a weight must have outputs and inputs");
    check(w.data != nullptr, "a weight must have data");
    if (!is_quantized(w.type)) return w;
    check(w.group == 32 || w.group == 64 || w.group == 128, "groups must be of 32, 64 or 128");
    check(w.inputs % w.group == 0, "inputs must be a multiple of the group");
    check(w.scales && w.zeros, "quantized weights must have scales and zeros");
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

const LinearKernels& linear_kernels(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kAvx2Linear;
    if (isa == Isa::kAvx512) return kAvx512Linear;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kNeonLinear;
#endif
    (void)isa;
    return kPortableLinear;
}

}  // namespace tandem

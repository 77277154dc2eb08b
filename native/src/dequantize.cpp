#include "dequantize.hpp"

#include <algorithm>
#include <cstdint>

#include "kernel_set.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kMinPartElements = 1 << 16;

int count_parts(const LinearWeight& weight, int num_threads) {
    const std::int64_t most = std::min(num_threads, weight.outputs);
    const std::int64_t elements = std::int64_t{weight.outputs} * weight.inputs;
    return static_cast<int>(std::clamp<std::int64_t>(elements / kMinPartElements, 1, most));
}

}  // namespace

DequantizeJob::DequantizeJob(const LinearWeight& weight, float* out, Isa isa, int num_threads)
    : Job(count_parts(checked_weight(weight), num_threads)),
      weight_(weight),
      out_(out),
      kernels_(kernel_set(isa).linear) {}

void DequantizeJob::run_part(int part) {
    const std::int64_t outputs = weight_.outputs;
    const int first = static_cast<int>(outputs * part / num_parts());
    const int last = static_cast<int>(outputs * (part + 1) / num_parts());
    kernels_.unpack[int(weight_.type)]({.weights = weight_rows(weight_, first, last - first),
                                        .first = 0,
                                        .count = weight_.inputs,
                                        .out = out_ + std::int64_t{first} * weight_.inputs,
                                        .out_stride = weight_.inputs});
}

}  // namespace tandem

// A linear map's weight in arrays of Python, checked once and used by many calls.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "arrays.hpp"
#include "linear.hpp"

namespace tandem {

// Keeps its arrays alive.
class HostLinearWeight {
  public:
    // float32, float16 or bfloat16 [outputs, inputs].
    HostLinearWeight(const ReadOnlyArray& weight, const std::optional<ReadOnlyArray>& bias);

    // q: uint8, [outputs, inputs] of 8 bits or [outputs, inputs / 2] of 4; scales float16 and zeros
    // uint8, [outputs, groups].
    HostLinearWeight(const ReadOnlyArray& q, int bits, const ReadOnlyArray& scales,
                     const ReadOnlyArray& zeros, const std::optional<ReadOnlyArray>& bias);

    const LinearWeight& view() const { return view_; }

  private:
    void set_bias(const std::optional<ReadOnlyArray>& bias);

    LinearWeight view_{};
    std::vector<nb::object> memory_;
};

}  // namespace tandem

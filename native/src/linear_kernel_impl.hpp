// The kernels of linear maps, written once over a vector type `Vec`.
//
// Included by one source per instruction set. Nothing here may come from the standard library's
// inline functions: the linker keeps one copy of those for all instruction sets.
#pragma once

#include "activation_impl.hpp"
#include "linear_panel_impl.hpp"
#include "linear_stream_impl.hpp"

namespace tandem {
namespace {

template <class Vec>
void end(const EndRun& run) {
    const auto finish = [&](int i, const auto& load, const auto& store) {
        auto value = load(run.sums + i);
        if (run.bias) value = Vec::add(value, load(run.bias + i));
        if (run.end == LinearEnd::kGated || run.end == LinearEnd::kActivate)
            value = activate<Vec>(value, run.activation);
        if (run.end == LinearEnd::kGated) {
            auto up = load(run.up_sums + i);
            if (run.up_bias) up = Vec::add(up, load(run.up_bias + i));
            value = Vec::mul(value, up);
        }
        if (run.end == LinearEnd::kAdd) value = Vec::add(value, load(run.y + i));
        store(run.y + i, value);
    };
    int i = 0;
    for (; i + Vec::kWidth <= run.count; i += Vec::kWidth)
        finish(
            i, [](const float* p) { return Vec::load(p); },
            [](float* p, auto value) { Vec::store(p, value); });
    const int rest = run.count - i;
    if (rest > 0)
        finish(
            i, [=](const float* p) { return Vec::load_part(p, rest); },
            [=](float* p, auto value) { Vec::store_part(p, value, rest); });
}

template <class Vec>
constexpr LinearKernels make_linear_kernels() {
    return {
        .width = Vec::kWidth,
        .panel = {.weight_rows = kTileStep,
                  .inputs = 1,
                  .most_inputs = kMaxBlockInputs,
                  .x_bytes = sizeof(float)},
        .stream = {stream<Vec, float>, stream<Vec, Half>, stream<Vec, BFloat>, stream<Vec, Byte>,
                   stream<Vec, Nibbles>},
        .unpack = {unpack_floats<Vec, float>, unpack_floats<Vec, Half>, unpack_floats<Vec, BFloat>,
                   unpack_groups<Vec, Byte>, unpack_groups<Vec, Nibbles>},
        .unpack_panel = {unpack_floats<Vec, float>, unpack_floats<Vec, Half>,
                         unpack_floats<Vec, BFloat>, unpack_groups<Vec, Byte>,
                         unpack_groups<Vec, Nibbles>},
        .sum_groups = sum_groups<Vec>,
        .pack = pack<Vec>,
        .multiply = multiply<Vec>,
        .turn = turn<Vec>,
        .end = end<Vec>};
}

}  // namespace
}  // namespace tandem

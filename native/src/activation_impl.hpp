// Activations over a vector type `Vec`, accurate to some 1e-7 of the result wherever it is a normal
// number. For sources per instruction set: nothing from the standard library's inline functions.
#pragma once

#include "linear_kernel.hpp"

namespace tandem {
namespace {

// e^(a + small) for a <= 0 and a tiny `small`; 0 below 2^-126.
template <class Vec>
typename Vec::Reg exp_negative(typename Vec::Reg a, typename Vec::Reg small) {
    constexpr float kLog2e = 1.44269504f;
    // ln 2 in two parts, of which the first times a whole number up to 126 is exact.
    constexpr float kLn2 = 0.693359375f, kLn2Rest = -2.12194440e-4f;
    constexpr float kTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                 1.0f / 6,    0.5f,       1.0f,       1.0f};
    const auto bounded = Vec::max(Vec::broadcast(-100.0f), a);  // NaN stays
    auto part = Vec::mul(bounded, Vec::broadcast(kLog2e));
    const auto scaled = part;
    const auto power = Vec::split_exponent(part);
    const auto lowest = Vec::broadcast(-126.0f);
    const auto whole = Vec::sub(Vec::max(lowest, scaled), part);
    auto r = Vec::sub(bounded, Vec::mul(whole, Vec::broadcast(kLn2)));
    r = Vec::add(Vec::sub(r, Vec::mul(whole, Vec::broadcast(kLn2Rest))), small);
    auto y = Vec::broadcast(kTaylor[0]);
    for (int i = 1; i < 8; ++i) y = Vec::fma(y, r, Vec::broadcast(kTaylor[i]));
    return Vec::mul(y, power);
}

// 1 / (1 + e^a) for a >= 0, as e^-a / (1 + e^-a).
template <class Vec>
typename Vec::Reg logistic_tail(typename Vec::Reg a) {
    const auto e = exp_negative<Vec>(Vec::sub(Vec::zero(), a), Vec::zero());
    return Vec::div(e, Vec::add(Vec::broadcast(1.0f), e));
}

// 1 - Phi(a) = erfc(a / sqrt 2) / 2 for 0 <= a <= 100, Phi the normal distribution: e^(-a^2 / 2)
// times a polynomial in t = 1 / (1 + 0.35 a) that was fitted to 2e-9 on 0..14, beyond which it is
// 0.
template <class Vec>
typename Vec::Reg normal_tail(typename Vec::Reg a) {
    constexpr float kCoefficients[] = {0.00309198094f, -0.0454040095f, 0.180794701f, -0.302720964f,
                                       0.196323723f,   -0.0418934859f, 0.111562759f, 0.118637137f,
                                       0.139992759f,   0.139615372f};
    const auto one = Vec::broadcast(1.0f), minus_half = Vec::broadcast(-0.5f);
    const auto t = Vec::div(one, Vec::fma(a, Vec::broadcast(0.35f), one));
    auto y = Vec::broadcast(kCoefficients[0]);
    for (int i = 1; i < 10; ++i) y = Vec::fma(y, t, Vec::broadcast(kCoefficients[i]));
    // The square in two parts, the first exact: its rounding would show in e^(-a^2 / 2).
    const auto high = Vec::coarse(a);
    const auto square = Vec::mul(Vec::mul(high, high), minus_half);
    const auto rest = Vec::mul(Vec::mul(Vec::sub(a, high), Vec::add(a, high)), minus_half);
    return Vec::mul(Vec::mul(y, t), exp_negative<Vec>(square, rest));
}

// The three smooth ones are x - x * tail(x) for positive x, and x * tail(-x) for negative x.
template <class Vec>
typename Vec::Reg activate(typename Vec::Reg x, Activation activation) {
    const auto zero = Vec::zero();
    if (activation == Activation::kNone) return x;
    if (activation == Activation::kRelu) return Vec::max(zero, x);  // NaN stays
    const auto minus_size =
        Vec::max(Vec::broadcast(-100.0f), Vec::sub(zero, Vec::max(Vec::sub(zero, x), x)));
    const auto size = Vec::sub(zero, minus_size);
    auto tail = zero;
    switch (activation) {
        case Activation::kGelu:
            tail = normal_tail<Vec>(size);
            break;
        case Activation::kGeluTanh: {
            constexpr float kTwoRoot = 1.59576912f;  // 2 sqrt(2 / pi)
            const auto cubic = Vec::fma(Vec::mul(size, size), Vec::broadcast(0.044715f * kTwoRoot),
                                        Vec::broadcast(kTwoRoot));
            tail = logistic_tail<Vec>(Vec::mul(size, cubic));
            break;
        }
        default:
            tail = logistic_tail<Vec>(size);
    }
    return Vec::fma(minus_size, tail, Vec::max(x, zero));
}

}  // namespace
}  // namespace tandem

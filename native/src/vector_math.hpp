// Functions of vectors that no instruction set has.
#pragma once

namespace tandem {
namespace {

// 2^x for x <= 0: Taylor's polynomial of degree 7 on -0.5..0.5, relative error 1e-8.
template <class Vec>
typename Vec::Reg exp2(typename Vec::Reg x) {
    constexpr float kCoefficients[] = {1.5252734e-5f, 1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f,
                                       5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f};
    const auto power = Vec::split_exponent(x);
    auto y = Vec::broadcast(kCoefficients[0]);
    for (int i = 1; i < 8; ++i) y = Vec::fma(y, x, Vec::broadcast(kCoefficients[i]));
    return Vec::mul(y, power);
}

// cap * tanh(x / cap); the error is some 1e-7 of the cap.
template <class Vec>
typename Vec::Reg cap_softly(typename Vec::Reg x, float cap) {
    constexpr float kTwoLog2e = 2.8853901f;
    const auto size = Vec::max(x, Vec::sub(Vec::zero(), x));
    const auto shrunk = exp2<Vec>(Vec::mul(size, Vec::broadcast(-kTwoLog2e / cap)));
    const auto one = Vec::broadcast(1.0f);
    const auto tanh = Vec::div(Vec::sub(one, shrunk), Vec::add(one, shrunk));
    return Vec::copy_sign(Vec::mul(tanh, Vec::broadcast(cap)), x);
}

}  // namespace
}  // namespace tandem

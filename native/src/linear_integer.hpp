// The interface between linear maps and their kernels in whole numbers: int8 weights with x rounded
// to 8 bits per group.
#pragma once

#include <cstdint>

#include "linear_kernel.hpp"

namespace tandem {

// One row of x as x = code scale, with codes of -127..127 in each group. A group that holds a
// number that is not finite has such a scale.
struct RoundRun {
    const float* x;
    int group;
    int groups;
    void* codes;    // [groups * group]; of the kernels' code type
    float* scales;  // [groups]
    float* sums;    // [groups]: minus the sum of x as rounded
};

// out[row][i] (+)= x[row] . weights[i] over a block of inputs.
struct IntegerRun {
    WeightRows weights;   // int8
    int first;            // input, a group's first
    int count;            // of inputs, whole groups
    const void* x;        // codes [rows, weights.inputs]
    const float* scales;  // [rows, weights.groups], as are:
    const float* sums;
    int rows;
    float* out;
    std::int64_t out_stride;
    bool adds;  // to out; else it is overwritten
};

struct IntegerKernels {
    int code_bytes;  // of an element of x
    void (*round)(const RoundRun&);
    void (*multiply)(const IntegerRun&);
};

extern const IntegerKernels kPortableInteger;
#if defined(__x86_64__)
extern const IntegerKernels kAvx2Integer;
extern const IntegerKernels kVnniInteger;
#elif defined(__aarch64__)
extern const IntegerKernels kNeonInteger;
extern const IntegerKernels kDotProductInteger;
#endif

}  // namespace tandem

// All kernels of one instruction set.
#pragma once

#include "attention_kernel.hpp"
#include "isa.hpp"
#include "linear_integer.hpp"
#include "linear_kernel.hpp"
#include "prefill_kernel.hpp"

namespace tandem {

struct KernelSet {
    const AttentionKernels& attention;
    const PrefillKernels& prefill;
    const LinearKernels& linear;
    const IntegerKernels& integer;
};

const KernelSet& kernel_set(Isa isa);

}  // namespace tandem

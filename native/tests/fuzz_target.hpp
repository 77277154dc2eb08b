// What a driver sees of a fuzz target.
#pragma once

#include <cstddef>
#include <cstdint>

// Inputs that were not refused: attention ran, and its result was checked.
struct FuzzCounts {
    long decode = 0;
    long prefill = 0;
};

const FuzzCounts& fuzz_counts();

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

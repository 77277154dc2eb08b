// What a job is lived through by, as `Home` and `Wave` of `tandem/planner/waves.py`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace tandem::planner {

// Where requests lie.
struct Home {
    std::int64_t blocks = 0, most = 0;
    // Blocks that are kept free while another request begins, at most; for each that runs one.
    std::int64_t most_reserved = 0;
    double sweeps_per_token = 1.0, sweeps_per_prompt = 0.0, sweeps_leaving = 0.0;
};

struct Wave {
    std::array<Home, 2> homes;
    std::int64_t places = 0, block_size = 0;
    double prompt_tokens = 0.0, each = 1.0;
};

struct RequestShape {
    std::int64_t prompt_tokens = 0, generated_tokens = 0;
};

// Seconds of a sweep by tokens in KV on the device and on the host, and tokens of prompts.
using SweepS = std::function<double(double, double, double)>;

}  // namespace tandem::planner

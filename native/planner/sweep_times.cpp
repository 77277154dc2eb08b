#include "sweep_times.hpp"

#include <cmath>

#include "require.hpp"

namespace tandem::planner {

double ExpertTimes::seconds(double seen_tokens, double prompt_tokens) const {
    const double tokens = seen_tokens / row_tokens + prompt_tokens;
    return all_s * (1.0 - std::pow(without, tokens));
}

SweepTimes::SweepTimes(double least_s, double device_token_s, double host_token_s, Prompts prompts,
                       std::optional<double> hosted_s, std::optional<ExpertTimes> experts)
    : least_s_(least_s),
      device_token_s_(device_token_s),
      host_token_s_(host_token_s),
      prompts_(std::move(prompts)),
      hosted_s_(hosted_s),
      experts_(experts) {
    require(!prompts_.empty(), "sweeps with prompts must have been timed");
    double before = 0.0;
    for (const auto& [size, seconds] : prompts_) {
        require(size > before, "sizes of prompts must ascend from above 0");
        before = size;
    }
}

double SweepTimes::operator()(double device_tokens, double host_tokens,
                              double prompt_tokens) const {
    if (hosted_s_ && device_tokens == 0 && prompt_tokens == 0) return *hosted_s_;
    double decode_s = least_s_ + device_tokens * device_token_s_;
    decode_s += host_tokens * host_token_s_;
    if (experts_) decode_s += experts_->seconds(device_tokens + host_tokens, prompt_tokens);
    return decode_s + prompts_s(prompt_tokens);
}

double SweepTimes::prompts_s(double tokens) const {
    double before = 0.0, before_s = 0.0;
    for (const auto& [size, size_s] : prompts_) {
        if (tokens <= size) {
            return before_s + (size_s - before_s) * (tokens - before) / (size - before);
        }
        before = size;
        before_s = size_s;
    }
    return before_s * tokens / before;
}

}  // namespace tandem::planner

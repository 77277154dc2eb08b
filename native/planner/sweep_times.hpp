// What sweeps take, as `SweepTimes` of `tandem/planner/sweep_times.py` has it, to the bit.
#pragma once

#include <optional>
#include <utility>
#include <vector>

namespace tandem::planner {

// Of a mixture: `1 - without ** tokens` of its experts are touched.
struct ExpertTimes {
    double without = 0.0, all_s = 0.0, row_tokens = 1.0;

    double seconds(double seen_tokens, double prompt_tokens) const;
};

class SweepTimes {
  public:
    using Prompts = std::vector<std::pair<double, double>>;  // tokens, seconds; ascending

    // Throws std::invalid_argument unless tokens of prompts are positive and ascend.
    SweepTimes(double least_s, double device_token_s, double host_token_s, Prompts prompts,
               std::optional<double> hosted_s, std::optional<ExpertTimes> experts);

    double operator()(double device_tokens, double host_tokens, double prompt_tokens) const;

  private:
    double prompts_s(double tokens) const;

    double least_s_, device_token_s_, host_token_s_;
    Prompts prompts_;
    std::optional<double> hosted_s_;
    std::optional<ExpertTimes> experts_;
};

}  // namespace tandem::planner

// Equal runs of rows for the parts of a job.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

// Parts worth waking threads for: one per thread, but none with fewer than 2^15 elements.
inline int count_parts(std::int64_t rows, std::int64_t row_elements, int num_threads) {
    constexpr std::int64_t kMinElements = 1 << 15;
    const std::int64_t most = std::min<std::int64_t>(rows, num_threads);
    return static_cast<int>(std::clamp<std::int64_t>(rows * row_elements / kMinElements, 1,
                                                     std::max<std::int64_t>(most, 1)));
}

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Units of different weight, in order, as parts of about equal weight.
class EvenCut {
  public:
    // total: of all units' weights.
    EvenCut(std::int64_t total, std::int64_t parts) : total_(total), parts_(parts) {}

    // Whether a part ends after the next unit, the last one included.
    bool ends_after(std::int64_t weight) {
        done_ += weight;
        if (done_ * parts_ < total_ * (part_ + 1)) return false;
        while (done_ * parts_ >= total_ * (part_ + 1)) ++part_;
        return true;
    }

  private:
    std::int64_t total_, parts_;
    std::int64_t done_ = 0;
    std::int64_t part_ = 0;
};

struct Run {
    std::int64_t begin;
    std::int64_t end;
};

inline Run run_of(std::int64_t rows, int part, int num_parts) {
    return {rows * part / num_parts, rows * (part + 1) / num_parts};
}

}  // namespace tandem

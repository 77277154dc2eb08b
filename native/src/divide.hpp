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

struct Run {
    std::int64_t begin;
    std::int64_t end;
};

inline Run run_of(std::int64_t rows, int part, int num_parts) {
    return {rows * part / num_parts, rows * (part + 1) / num_parts};
}

}  // namespace tandem

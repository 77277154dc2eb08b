// Reads memory as fast as the threads can: the bound that kernels are measured against.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "job.hpp"

namespace tandem {

class ReadProbe final : public Job {
  public:
    // Reads `words` 64-bit words, but for a few at the end, in `num_parts` runs of four strips.
    ReadProbe(const std::uint64_t* data, std::size_t words, int num_parts);

    // Of all words read; there so that reading cannot be left out.
    std::uint64_t sum() const { return sum_.load(); }

  private:
    void run_part(int part) override;

    const std::uint64_t* data_;
    std::size_t words_;
    std::size_t parts_;
    std::atomic<std::uint64_t> sum_{0};
};

}  // namespace tandem

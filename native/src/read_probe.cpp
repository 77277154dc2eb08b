#include "read_probe.hpp"

#include <stdexcept>

namespace tandem {
namespace {

constexpr std::size_t kStep = 128;  // words

}  // namespace

ReadProbe::ReadProbe(const std::uint64_t* data, std::size_t words, int num_parts)
    : Job(num_parts), data_(data), words_(words), parts_(static_cast<std::size_t>(num_parts)) {
    if (num_parts < 1) throw std::invalid_argument("a probe needs at least one part");
}

void ReadProbe::run_part(int part) {
    const std::size_t steps = words_ / kStep;
    const std::size_t first = steps * static_cast<std::size_t>(part) / parts_;
    const std::size_t last = steps * (static_cast<std::size_t>(part) + 1) / parts_;
    // Nothing is asked for ahead: the processor itself does it better.
    typedef std::uint64_t Words __attribute__((vector_size(64)));
    Words sums[4] = {};
    for (std::size_t step = first; step < last; ++step) {
        const std::uint64_t* at = data_ + step * kStep;
        for (std::size_t i = 0; i < kStep; i += 8) {
            Words words;
            __builtin_memcpy(&words, at + i, sizeof words);
            sums[i / 8 % 4] += words;
        }
    }
    const Words total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    std::uint64_t sum = 0;
    for (int i = 0; i < 8; ++i) sum += total[i];
    sum_.fetch_add(sum);
}

}  // namespace tandem

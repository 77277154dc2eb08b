#include "read_probe.hpp"

#include <stdexcept>

namespace tandem {
namespace {

constexpr std::size_t kLineWords = 8;
// Read at once: a core has more of memory under way than it asks for ahead of a single strip.
constexpr std::size_t kStrips = 4;

}  // namespace

ReadProbe::ReadProbe(const std::uint64_t* data, std::size_t words, int num_parts)
    : Job(num_parts), data_(data), words_(words), parts_(static_cast<std::size_t>(num_parts)) {
    if (num_parts < 1) throw std::invalid_argument("a probe needs at least one part");
}

void ReadProbe::run_part(int part) {
    const std::size_t lines = words_ / kLineWords / kStrips * kStrips;
    const auto begin_of = [&](int at) {
        return lines * static_cast<std::size_t>(at) / parts_ / kStrips * kStrips;
    };
    const std::size_t first = begin_of(part), apart = (begin_of(part + 1) - first) / kStrips;
    // Nothing is asked for ahead: the processor itself does it better.
    typedef std::uint64_t Words __attribute__((vector_size(16)));
    Words sums[kStrips][2] = {};
    for (std::size_t line = first; line < first + apart; ++line)
#pragma GCC unroll 4
        for (std::size_t strip = 0; strip < kStrips; ++strip) {
            const std::uint64_t* at = data_ + (line + strip * apart) * kLineWords;
#pragma GCC unroll 4
            for (std::size_t i = 0; i < kLineWords; i += 2) {
                Words words;
                __builtin_memcpy(&words, at + i, sizeof words);
                sums[strip][i / 2 % 2] += words;
            }
        }
    Words total = {};
    for (const auto& strip : sums) total += strip[0] + strip[1];
    sum_.fetch_add(total[0] + total[1]);
}

}  // namespace tandem

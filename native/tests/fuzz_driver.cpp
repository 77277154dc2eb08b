// Runs a fuzz target without libFuzzer: a fixed number of random and mutated inputs, the same each
// time. Enough of them must get past the checks, or the target proves nothing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "check.hpp"
#include "fuzz_target.hpp"

namespace {

using Input = std::vector<std::uint8_t>;
using Random = std::mt19937;

constexpr int kRounds = 4000, kCorpus = 64, kMostBytes = 400;
constexpr int kFewest = 16;  // of how many inputs one must run, of each kind

std::size_t draw(Random& random, std::size_t end) { return random() % end; }

Input make(Random& random) {
    Input input(draw(random, kMostBytes));
    for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random());
    return input;
}

void mutate(Input& input, Random& random) {
    for (std::size_t left = 1 + draw(random, 4); left > 0 && !input.empty(); --left) {
        const std::size_t at = draw(random, input.size());
        const std::uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, static_cast<std::uint8_t>(random())};
        switch (draw(random, 3)) {
            case 0:
                input[at] = odd[draw(random, 6)];
                break;
            case 1:
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), odd[draw(random, 6)]);
                break;
            default:
                input.erase(input.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
}

}  // namespace

// The number of rounds may be given.
int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : kRounds;
    Random random(11);
    std::vector<Input> corpus(kCorpus);
    for (int i = 0; i < rounds; ++i) {
        Input& input = corpus[draw(random, corpus.size())];
        if (i % 2 == 0)
            input = make(random);
        else
            mutate(input, random);
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    const FuzzCounts& ran = fuzz_counts();
    std::printf("%d inputs ok: %ld of decode and %ld of prefill were not refused\n", rounds,
                ran.decode, ran.prefill);
    CHECK(ran.decode >= rounds / kFewest && ran.prefill >= rounds / kFewest);
}

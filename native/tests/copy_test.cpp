// Copies between pools of exactly the size that they may touch, and pairs of pools and ids that
// must be refused.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "copy_blocks.hpp"
#include "pool.hpp"

namespace {

using namespace tandem;

using Random = std::mt19937;
using Bytes = std::vector<std::byte>;
using Ids = std::vector<std::int64_t>;

int draw(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}

Bytes random_bytes(Random& random, std::int64_t count) {
    Bytes bytes(static_cast<std::size_t>(count));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

// `count` of `blocks`, in runs or shuffled.
Ids choose(Random& random, int blocks, int count) {
    Ids ids(blocks);
    std::iota(ids.begin(), ids.end(), 0);
    if (draw(random, 0, 1)) std::shuffle(ids.begin(), ids.end(), random);
    const int skipped = draw(random, 0, blocks - count);
    return {ids.begin() + skipped, ids.begin() + skipped + count};
}

void run(Pool& pool, const CopyMemory& memory) {
    CopyJob job(memory, pool.num_threads());
    pool.submit(job);
    CHECK(pool.wait(job, std::chrono::steady_clock::time_point::max()));
}

void copies_what_it_should(Random& random, Pool& pool) {
    const int layers = draw(random, 1, 4), from = draw(random, 1, 20), to = draw(random, 1, 20);
    const int count = draw(random, 0, std::min(from, to));
    const std::int64_t size = draw(random, 0, 1) ? draw(random, 1, 300) : draw(random, 1, 70000);
    const Bytes source = random_bytes(random, layers * from * size);
    Bytes target = random_bytes(random, layers * to * size), expected = target;
    const Ids read = choose(random, from, count), written = choose(random, to, count);
    for (int layer = 0; layer < layers; ++layer)
        for (int i = 0; i < count; ++i)
            std::memcpy(expected.data() + (layer * to + written[i]) * size,
                        source.data() + (layer * from + read[i]) * size,
                        static_cast<std::size_t>(size));
    run(pool, {source.data(), target.data(), from, to, layers, size, read, written});
    CHECK(target == expected);
}

void within_one_pool_blocks_must_differ(Pool& pool) {
    Bytes bytes(4 * 100);
    bytes[0] = std::byte{7};
    const Ids first{0}, last{3};
    run(pool, {bytes.data(), bytes.data(), 4, 4, 1, 100, first, last});
    CHECK(bytes[300] == std::byte{7});
}

// Ids that are changed after the job was made are not followed.
void copies_the_blocks_that_were_checked(Pool& pool) {
    const Bytes source(400, std::byte{7});
    Bytes target(400);
    Ids read{1}, written{2};
    CopyJob job({source.data(), target.data(), 4, 4, 1, 100, read, written}, pool.num_threads());
    read[0] = written[0] = std::int64_t{1} << 40;
    pool.run(job);
    for (std::size_t i = 0; i < target.size(); ++i)
        CHECK(target[i] == std::byte(i / 100 == 2 ? 7 : 0));
}

void refused(const CopyMemory& memory) {
    try {
        CopyJob job(memory, 2);
    } catch (const std::invalid_argument&) {
        return;
    }
    CHECK(false);
}

void bad_ids_are_refused() {
    Bytes a(400), b(400);
    const Ids zero{0}, four{4}, negative{-1}, twice{1, 1}, pair{0, 1}, swapped{1, 0};
    refused({a.data(), b.data(), 4, 4, 1, 100, four, zero});
    refused({a.data(), b.data(), 4, 4, 1, 100, zero, four});
    refused({a.data(), b.data(), 4, 4, 1, 100, negative, zero});
    refused({a.data(), b.data(), 4, 4, 1, 100, zero, negative});
    refused({a.data(), b.data(), 4, 4, 1, 100, pair, twice});
    refused({a.data(), b.data(), 4, 4, 1, 100, pair, zero});
    refused({a.data(), a.data(), 4, 4, 1, 100, pair, swapped});
    refused({a.data(), a.data() + 100, 3, 3, 1, 100, zero, zero});
}

}  // namespace

int main() {
    Random random(7);
    Pool pool({3, false, std::chrono::microseconds(10)});
    for (int i = 0; i < 200; ++i) copies_what_it_should(random, pool);
    within_one_pool_blocks_must_differ(pool);
    copies_the_blocks_that_were_checked(pool);
    bad_ids_are_refused();
}

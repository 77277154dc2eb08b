#include "spin_probe.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "signal.hpp"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::vector<std::int64_t> spin_round_trips(int rounds) {
    if (rounds < 1) throw std::invalid_argument("a probe needs at least one round");
    alignas(64) std::atomic<int> ping{0};
    alignas(64) std::atomic<int> pong{0};
    std::thread other([&] {
        for (int i = 1; i <= rounds; ++i) {
            while (ping.load(std::memory_order_acquire) != i) relax();
            pong.store(i, std::memory_order_release);
        }
    });
    std::vector<std::int64_t> one_way;
    for (int i = 1; i <= rounds; ++i) {
        const Clock::time_point begin = Clock::now();
        ping.store(i, std::memory_order_release);
        while (pong.load(std::memory_order_acquire) != i) relax();
        const auto trip = Clock::now() - begin;
        one_way.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(trip).count() / 2);
    }
    other.join();
    return one_way;
}

}  // namespace tandem

#include "signal.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <stdexcept>
#include <string>

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kLookAgain = std::chrono::milliseconds(1);

// Shared, not private: the counter may lie in memory that another process or a driver maps.
long futex(Counter& counter, int operation, std::uint32_t value, const timespec* timeout) {
    return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&counter), operation, value, timeout,
                   nullptr, 0);
}

}  // namespace

Conditions::Conditions(std::span<const SignalPoint> points) {
    if (points.size() > kMost)
        throw std::invalid_argument("work waits for " + std::to_string(kMost) +
                                    " signals at most, not " + std::to_string(points.size()));
    std::copy(points.begin(), points.end(), points_.begin());
}

bool raise(Counter& counter, std::uint32_t value) {
    std::uint32_t current = counter.load(std::memory_order_relaxed);
    do {
        if (!reached(value, current)) return false;
    } while (!counter.compare_exchange_weak(current, value, std::memory_order_acq_rel,
                                            std::memory_order_relaxed));
    futex(counter, FUTEX_WAKE, INT_MAX, nullptr);
    return true;
}

bool wait_for(Counter& counter, std::uint32_t value, Clock::time_point deadline) {
    const Clock::time_point spin_end = Clock::now() + kSpin;
    for (;;) {
        const std::uint32_t current = counter.load(std::memory_order_acquire);
        if (reached(current, value)) return true;
        const Clock::time_point now = Clock::now();
        if (now >= deadline) return false;
        if (now < spin_end) {
            relax();
            continue;
        }
        const auto left = std::min<Clock::duration>(kLookAgain, deadline - now);
        const timespec timeout{0, std::chrono::nanoseconds(left).count()};
        futex(counter, FUTEX_WAIT, current, &timeout);
    }
}

}  // namespace tandem

// A monotonic 32-bit counter in host memory that any queue may raise and wait for.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

using Counter = std::atomic<std::uint32_t>;
static_assert(sizeof(Counter) == 4 && Counter::is_always_lock_free);

// Whether a counter at `current` is at or beyond `value`, on the 32-bit circle.
constexpr bool reached(std::uint32_t current, std::uint32_t value) {
    return current - value < 0x80000000u;
}

// A point of a counter; without a counter it is always reached.
struct SignalPoint {
    Counter* counter = nullptr;
    std::uint32_t value = 0;

    bool is_reached() const {
        return !counter || reached(counter->load(std::memory_order_acquire), value);
    }
};

// Points that must all be reached.
class Conditions {
  public:
    static constexpr std::size_t kMost = 4;

    Conditions() = default;
    Conditions(SignalPoint point) : points_{point} {}
    // Throws std::invalid_argument for more than kMost.
    explicit Conditions(std::span<const SignalPoint> points);

    bool are_reached() const {
        for (const SignalPoint& point : points_)
            if (!point.is_reached()) return false;
        return true;
    }

  private:
    std::array<SignalPoint, kMost> points_{};
};

// Raises the counter and wakes its waiters; false, and nothing happens, if it would go back.
bool raise(Counter& counter, std::uint32_t value);

// Blocks until the counter reaches `value`; false if `deadline` passed first.
//
// Spins, then sleeps. A device that writes to the counter wakes no one: sleeps end after a
// millisecond to look again.
bool wait_for(Counter& counter, std::uint32_t value,
              std::chrono::steady_clock::time_point deadline);

// One iteration of a busy wait.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace tandem

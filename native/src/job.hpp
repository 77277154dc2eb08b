// Work for the pool: some parts that may run in any order and at once, then an end.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>

#include "signal.hpp"

namespace tandem {

// Its owner keeps a job alive until the pool's `wait` for it returned true.
class Job {
  public:
    explicit Job(int num_parts) : num_parts_(num_parts) {}
    virtual ~Job() = default;
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    int num_parts() const { return num_parts_; }

    // Steady clock, nanoseconds: the first part began, the last thing ended; 0 before.
    std::int64_t start_ns() const { return start_ns_.load(std::memory_order_acquire); }
    std::int64_t end_ns() const { return end_ns_.load(std::memory_order_acquire); }
    bool done() const { return done_.load(std::memory_order_acquire); }

  protected:
    // Both may throw: the first exception reaches whoever waits for the job.
    virtual void run_part(int part) = 0;
    virtual void finish() {}  // after all parts, once, unless one threw

  private:
    friend class Pool;

    int parts_left() const { return num_parts_ - next_part_.load(std::memory_order_relaxed); }
    int workers_left() const { return most_workers_ - workers_; }

    const int num_parts_;
    Conditions after_;
    SignalPoint then_;
    std::atomic<std::int64_t> start_ns_{0};
    std::atomic<std::int64_t> end_ns_{0};
    std::atomic<bool> submitted_{false};
    std::atomic<bool> done_{false};
    // Below: held by the pool's mutex until the last thread has left.
    bool ready_ = false;
    bool begun_ = false;
    int threads_ = 0;  // that run parts now
    int workers_ = 0;  // of those, the pool's
    int most_workers_ = std::numeric_limits<int>::max();
    std::exception_ptr error_;
    Job* next_ = nullptr;
    alignas(64) std::atomic<int> next_part_{0};  // alone in its line: all threads write to it
};

}  // namespace tandem

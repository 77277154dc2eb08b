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

    // Runs everything on the calling thread instead of giving it to a pool.
    void run_here();

  protected:
    // Both may throw: the first exception reaches whoever waits for the job.
    virtual void run_part(int part) = 0;
    virtual void finish() {}  // after all parts, once, unless one threw

  private:
    friend class Pool;

    const int num_parts_;
    Conditions after_;
    SignalPoint then_;
    std::atomic<std::int64_t> start_ns_{0};
    std::atomic<std::int64_t> end_ns_{0};
    std::atomic<bool> done_{false};
    // Below: held by the pool's mutex.
    bool submitted_ = false;
    bool ready_ = false;
    int next_part_ = 0;
    int parts_left_ = 0;
    int workers_ = 0;  // the pool's threads that run a part now
    int most_workers_ = std::numeric_limits<int>::max();
    std::exception_ptr error_;
    Job* next_ = nullptr;
};

}  // namespace tandem

// Parts of a job that need what all of its earlier parts have done.
#pragma once

#include <atomic>

#include "spin_until.hpp"

namespace tandem {

// Parts are begun in order: when a later one waits, all earlier ones are done or under way.
class FirstPhase {
  public:
    explicit FirstPhase(int num_parts) : left_(num_parts) {}

    // Of one part of this phase; it ends with this object, also if it fails.
    class Part {
      public:
        explicit Part(FirstPhase& phase) : phase_(phase) {}
        ~Part() { phase_.left_.fetch_sub(1, std::memory_order_release); }
        Part(const Part&) = delete;
        Part& operator=(const Part&) = delete;

      private:
        FirstPhase& phase_;
    };

    void wait() const {
        spin_until([&] { return left_.load(std::memory_order_acquire) == 0; });
    }

  private:
    std::atomic<int> left_;
};

}  // namespace tandem

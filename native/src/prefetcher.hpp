// Memory that will be read soon, asked for while something else is computed.
#pragma once

#include <cstdint>

namespace tandem {
namespace {

constexpr int kCacheLine = 64;

// Asks for memory in the order in which it lies, evenly over a number of steps: asked for at once,
// it would wait for the processor's few buffers, and ask for nothing later. Addresses are numbers,
// since they go beyond the memory, and there may be none.
class Prefetcher {
  public:
    Prefetcher(const void* begin, long bytes, long steps)
        : at_(reinterpret_cast<std::uintptr_t>(begin)),
          due_(at_),
          end_(at_ + (begin ? bytes : 0)),
          step_bytes_(bytes / steps + 1) {}

    void advance(int steps) {
        due_ += steps * step_bytes_;
        const std::uintptr_t stop = due_ < end_ ? due_ : end_;
        for (; at_ < stop; at_ += kCacheLine)
            __builtin_prefetch(reinterpret_cast<const char*>(at_), 0, 3);
    }

  private:
    std::uintptr_t at_;
    std::uintptr_t due_;
    std::uintptr_t end_;
    long step_bytes_;
};

}  // namespace
}  // namespace tandem

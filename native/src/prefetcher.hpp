// Memory that will be read soon, asked for while something else is computed.
#pragma once

namespace tandem {
namespace {

constexpr int kCacheLine = 64;

// Asks for memory in the order in which it lies, evenly over a number of steps: asked for at once,
// it would wait for the processor's few buffers, and ask for nothing later.
class Prefetcher {
  public:
    Prefetcher(const void* begin, long bytes, long steps)
        : at_(static_cast<const char*>(begin)),
          due_(at_),
          end_(at_ + (begin ? bytes : 0)),
          step_bytes_(bytes / steps + 1) {}

    void advance(int steps) {
        due_ += steps * step_bytes_;
        const char* stop = due_ < end_ ? due_ : end_;
        for (; at_ < stop; at_ += kCacheLine) __builtin_prefetch(at_, 0, 3);
    }

  private:
    const char* at_;
    const char* due_;
    const char* end_;
    long step_bytes_;
};

}  // namespace
}  // namespace tandem

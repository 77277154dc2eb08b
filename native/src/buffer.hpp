// Aligned memory for floats that grows and never shrinks.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tandem {

class FloatBuffer {
  public:
    FloatBuffer() = default;
    FloatBuffer(FloatBuffer&& other) noexcept
        : memory_(std::move(other.memory_)), capacity_(std::exchange(other.capacity_, 0)) {}
    FloatBuffer& operator=(FloatBuffer&& other) noexcept {
        memory_ = std::move(other.memory_);
        capacity_ = std::exchange(other.capacity_, 0);
        return *this;
    }

    // At least `count` floats at a multiple of 64 bytes; earlier contents are lost.
    float* reserve(std::size_t count) {
        if (count > capacity_) {
            memory_.reset();
            capacity_ = 0;
            memory_.reset(static_cast<float*>(::operator new(count * sizeof(float), kAlign)));
            capacity_ = count;
        }
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t kAlign{64};

    struct Free {
        void operator()(float* p) const { ::operator delete(p, kAlign); }
    };

    std::unique_ptr<float, Free> memory_;
    std::size_t capacity_ = 0;
};

// Buffers that jobs took and gave back, for the next ones: once warm, no job allocates.
class BufferStore {
  public:
    FloatBuffer take() {
        const std::lock_guard lock(mutex_);
        if (spare_.empty()) return {};
        FloatBuffer buffer = std::move(spare_.back());
        spare_.pop_back();
        return buffer;
    }

    void give(FloatBuffer buffer) {
        const std::lock_guard lock(mutex_);
        if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(buffer));
    }

    BufferStore() { spare_.reserve(kMost); }

  private:
    static constexpr std::size_t kMost = 64;

    std::mutex mutex_;
    std::vector<FloatBuffer> spare_;
};

}  // namespace tandem

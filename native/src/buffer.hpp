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

    float* data() const { return memory_.get(); }
    std::size_t capacity() const { return capacity_; }

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
    BufferStore() { spare_.reserve(kMost); }

    // At least `count` floats: the smallest spare buffer that has them, else the largest one,
    // grown.
    FloatBuffer take(std::size_t count) {
        FloatBuffer buffer = take_spare(count);
        buffer.reserve(count);
        return buffer;
    }

    void give(FloatBuffer buffer) {
        const std::lock_guard lock(mutex_);
        if (buffer.capacity() > 0 && spare_.size() < kMost) spare_.push_back(std::move(buffer));
    }

  private:
    static constexpr std::size_t kMost = 1024;  // more than are in use at a time

    FloatBuffer take_spare(std::size_t count) {
        if (count == 0) return {};
        const std::lock_guard lock(mutex_);
        if (spare_.empty()) return {};
        std::size_t best = 0;
        for (std::size_t i = 1; i < spare_.size(); ++i) {
            const std::size_t found = spare_[i].capacity(), before = spare_[best].capacity();
            if (found >= count ? before < count || found < before
                               : found > before && before < count)
                best = i;
        }
        std::swap(spare_[best], spare_.back());
        FloatBuffer buffer = std::move(spare_.back());
        spare_.pop_back();
        return buffer;
    }

    std::mutex mutex_;
    std::vector<FloatBuffer> spare_;
};

}  // namespace tandem

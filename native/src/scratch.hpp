// Memory between two operations, from a pool's store and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "buffer.hpp"
#include "pool.hpp"

namespace tandem {

class Scratch {
  public:
    Scratch(Pool& pool, std::int64_t tokens, int width)
        : store_(pool.buffers()),
          buffer_(store_.take()),
          data_(buffer_.reserve(static_cast<std::size_t>(tokens) * width)) {}
    ~Scratch() { store_.give(std::move(buffer_)); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    float* data() const { return data_; }

  private:
    BufferStore& store_;
    FloatBuffer buffer_;
    float* data_;
};

}  // namespace tandem

// Memory between two operations, from a pool's store and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "buffer.hpp"

namespace tandem {

// Room for `count` elements, of no particular value at first.
template <class T>
class Borrowed {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    Borrowed(BufferStore& store, std::size_t count)
        : store_(store),
          buffer_(store.take((count * sizeof(T) + sizeof(float) - 1) / sizeof(float))),
          all_(reinterpret_cast<T*>(buffer_.data()), count) {}
    ~Borrowed() { store_.give(std::move(buffer_)); }
    Borrowed(Borrowed&& other) noexcept
        : store_(other.store_), buffer_(std::move(other.buffer_)), all_(other.all_) {}
    Borrowed& operator=(const Borrowed&) = delete;

    T* data() const { return all_.data(); }
    std::span<T> all() const { return all_; }
    T& operator[](std::size_t i) const { return all_[i]; }

  private:
    BufferStore& store_;
    FloatBuffer buffer_;
    std::span<T> all_;
};

// Rows of floats.
class Scratch : public Borrowed<float> {
  public:
    Scratch(BufferStore& store, std::int64_t tokens, int width)
        : Borrowed(store, static_cast<std::size_t>(tokens) * width) {}
};

}  // namespace tandem

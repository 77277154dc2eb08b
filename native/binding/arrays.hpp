// Arrays from Python, checked before memory is touched.
//
// Empty batches: attention, append, merge and copies of nothing do nothing, since a tier may hold
// none of a step's rows. Linear maps and layers refuse a batch without rows or tokens: a step
// without tokens is an error of whoever made it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtype.hpp"
#include "require.hpp"

namespace tandem {

namespace nb = nanobind;

using Array = nb::ndarray<nb::device::cpu>;
using ReadOnlyArray = nb::ndarray<nb::ro, nb::device::cpu>;

using Sizes = std::vector<std::int64_t>;

// Where an array lies and what it holds. Every check names the array.
class View {
  public:
    View(std::string name, const Array& array);
    View(std::string name, const ReadOnlyArray& array);

    const Sizes& shape() const { return shape_; }
    void* data() const { return data_; }
    std::int64_t elements() const;
    std::int64_t element_bytes() const { return type_.bits / 8; }
    // Elements from one entry of the first dimension to the next.
    std::int64_t stride() const { return strides_.empty() ? 0 : strides_[0]; }

    const View& require_shape(const Sizes& expected) const;
    const View& require_dimensions(std::size_t count, const std::string& meaning) const;
    const View& require_like(const View& other,
                             std::size_t dimension) const;  // type, shape from it
    const View& require_contiguous() const;
    const View& require_contiguous_entries() const;  // of the first dimension

    const View& require_bytes() const;                          // uint8 elements
    const View& require_alignment(std::uintptr_t bytes) const;  // beyond that of its elements

    DType float_type() const;
    DType page_type() const;              // float_type, or of a uint8 array e4m3
    float* floats() const;                // of a float32 array
    const std::uint16_t* halves() const;  // of a float16 array
    const std::uint8_t* bytes() const;    // of a uint8 array
    std::span<const std::int32_t> ints() const;
    std::span<std::int64_t> longs() const;

  private:
    template <class A>
    void read(const A& array);
    void require_strides(std::size_t first) const;

    std::string name_;
    void* data_ = nullptr;
    nb::dlpack::dtype type_{};
    Sizes shape_;
    Sizes strides_;
};

}  // namespace tandem

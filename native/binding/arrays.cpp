#include "arrays.hpp"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

std::string text(const Sizes& sizes) {
    std::string result;
    for (std::int64_t size : sizes) result += (result.empty() ? "" : ", ") + std::to_string(size);
    return "[" + result + "]";
}

}  // namespace

View::View(std::string name, const Array& array) : name_(std::move(name)) { read(array); }

View::View(std::string name, const ReadOnlyArray& array) : name_(std::move(name)) { read(array); }

template <class A>
void View::read(const A& array) {
    data_ = const_cast<void*>(static_cast<const void*>(array.data()));
    type_ = array.dtype();
    for (std::size_t i = 0; i < array.ndim(); ++i) {
        shape_.push_back(static_cast<std::int64_t>(array.shape(i)));
        strides_.push_back(array.stride(i));
    }
    require_alignment(std::max(1, type_.bits / 8));
}

const View& View::require_alignment(std::uintptr_t bytes) const {
    require(reinterpret_cast<std::uintptr_t>(data_) % bytes == 0,
            name_ + " must lie at a multiple of " + std::to_string(bytes) + " bytes");
    return *this;
}

std::int64_t View::elements() const {
    std::int64_t product = 1;
    for (std::int64_t size : shape_) product *= size;
    return product;
}

const View& View::require_shape(const Sizes& expected) const {
    require(shape_ == expected,
            name_ + " must have the shape " + text(expected) + ", not " + text(shape_));
    return *this;
}

const View& View::require_dimensions(std::size_t count, const std::string& meaning) const {
    require(shape_.size() == count, name_ + " must be " + meaning + ", not " + text(shape_));
    return *this;
}

const View& View::require_like(const View& other, std::size_t dimension) const {
    const auto rest = [&](const View& view) {
        const auto skipped = static_cast<std::ptrdiff_t>(std::min(dimension, view.shape_.size()));
        return Sizes(view.shape_.begin() + skipped, view.shape_.end());
    };
    require(
        type_ == other.type_ && shape_.size() == other.shape_.size() && rest(*this) == rest(other),
        name_ + " and " + other.name_ + " must agree in element type and shape " +
            text(rest(other)));
    return *this;
}

const View& View::require_contiguous() const {
    require_strides(0);
    return *this;
}

const View& View::require_contiguous_entries() const {
    require_strides(1);
    return *this;
}

void View::require_strides(std::size_t first) const {
    if (elements() == 0) return;
    std::int64_t expected = 1;
    for (std::size_t i = shape_.size(); i-- > first; expected *= shape_[i])
        require(shape_[i] == 1 || strides_[i] == expected, name_ + " must be contiguous");
}

const View& View::require_bytes() const {
    require(type_ == nb::dtype<std::uint8_t>(), name_ + " must be uint8");
    return *this;
}

DType View::float_type() const {
    if (type_ == nb::dtype<float>()) return DType::kFloat32;
    const bool narrow = type_.bits == 16 && type_.lanes == 1;
    const auto is = [&](nb::dlpack::dtype_code code) {
        return narrow && type_.code == static_cast<std::uint8_t>(code);
    };
    require(is(nb::dlpack::dtype_code::Float) || is(nb::dlpack::dtype_code::Bfloat),
            name_ + " must be float32, float16 or bfloat16");
    return is(nb::dlpack::dtype_code::Float) ? DType::kFloat16 : DType::kBFloat16;
}

DType View::page_type() const {
    return type_ == nb::dtype<std::uint8_t>() ? DType::kFloat8 : float_type();
}

float* View::floats() const {
    require(type_ == nb::dtype<float>(), name_ + " must be float32");
    return static_cast<float*>(data_);
}

const std::uint16_t* View::halves() const {
    const bool half = type_.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) &&
                      type_.bits == 16 && type_.lanes == 1;
    require(half, name_ + " must be float16");
    return static_cast<const std::uint16_t*>(data_);
}

const std::uint8_t* View::bytes() const {
    require(type_ == nb::dtype<std::uint8_t>(), name_ + " must be uint8");
    return static_cast<const std::uint8_t*>(data_);
}

std::span<const std::int32_t> View::ints() const {
    require(type_ == nb::dtype<std::int32_t>(), name_ + " must be int32");
    return {static_cast<const std::int32_t*>(data_), static_cast<std::size_t>(elements())};
}

std::span<std::int64_t> View::longs() const {
    require(type_ == nb::dtype<std::int64_t>(), name_ + " must be int64");
    return {static_cast<std::int64_t*>(data_), static_cast<std::size_t>(elements())};
}

}  // namespace tandem

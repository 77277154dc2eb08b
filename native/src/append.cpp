#include "append.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "convert.hpp"
#include "quantize.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kMinPartElements = 1 << 16;

int count_parts(const AppendMemory& m, int num_threads) {
    const auto elements = static_cast<std::int64_t>(m.slots.size()) * 2 * m.kv_heads * m.head_dim;
    return static_cast<int>(std::clamp<std::int64_t>(elements / kMinPartElements, 1, num_threads));
}

float load(const void* source, DType type, std::int64_t index) {
    if (type == DType::kFloat32) return static_cast<const float*>(source)[index];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(source)[index];
    return type == DType::kFloat16 ? from_half(bits) : from_bfloat(bits);
}

// Copies `count` elements from source[first...] to target[at...], converting where types differ.
void convert(const void* source, DType from, std::int64_t first, void* target, DType to,
             std::int64_t at, int count) {
    if (from == to) {
        const int size = element_bytes(to);
        std::memcpy(static_cast<char*>(target) + at * size,
                    static_cast<const char*>(source) + first * size, std::size_t(count) * size);
        return;
    }
    for (int i = 0; i < count; ++i) {
        const float value = load(source, from, first + i);
        if (to == DType::kFloat32)
            static_cast<float*>(target)[at + i] = value;
        else if (to == DType::kFloat8)
            static_cast<std::uint8_t*>(target)[at + i] = to_float8(value);
        else
            static_cast<std::uint16_t*>(target)[at + i] =
                to == DType::kFloat16 ? to_half(value) : to_bfloat(value);
    }
}

}  // namespace

AppendJob::AppendJob(const AppendMemory& memory, int num_threads, BufferStore& buffers)
    : Job(count_parts(memory, num_threads)),
      memory_(memory),
      slots_(buffers, memory.slots.size()),
      parts_(static_cast<std::size_t>(count_parts(memory, num_threads))) {
    if (is_quantized(memory_.page_type)) quantized_page().check();
    std::ranges::copy(memory.slots, slots_.all().begin());
    memory_.slots = slots_.all();
    const std::int64_t end = memory_.num_blocks * memory_.block_size;
    for (std::int64_t slot : memory_.slots)
        if (slot < 0 || slot >= end)
            throw std::invalid_argument("slot " + std::to_string(slot) +
                                        " does not exist: pages have " + std::to_string(end));
}

void AppendJob::run_part(int part) {
    const std::size_t tokens = memory_.slots.size();
    const auto index = static_cast<std::size_t>(part);
    const bool quantized = is_quantized(memory_.page_type);
    for (std::size_t t = tokens * index / parts_; t < tokens * (index + 1) / parts_; ++t)
        quantized ? write_quantized(t) : write(t);
}

QuantizedPage AppendJob::quantized_page() const {
    const AppendMemory& m = memory_;
    return {m.page_type == DType::kInt4 ? 4 : 8, m.kv_heads, m.block_size, m.head_dim};
}

void AppendJob::write_quantized(std::size_t token) const {
    const AppendMemory& m = memory_;
    const QuantizedPage layout = quantized_page();
    const std::int64_t block = m.slots[token] / m.block_size;
    const std::int64_t offset = m.slots[token] % m.block_size;
    auto* page = static_cast<std::uint8_t*>(m.pages) + block * layout.page_bytes();
    float values[kMaxCodeDim];
    for (int head = 0; head < 2 * m.kv_heads; ++head) {
        const bool key = head < m.kv_heads;
        const auto row = static_cast<std::int64_t>(token) * (key ? m.key_stride : m.value_stride);
        const std::int64_t column = std::int64_t{head % m.kv_heads} * m.head_dim;
        convert(key ? m.keys : m.values, m.source_type, row + column, values, DType::kFloat32, 0,
                m.head_dim);
        quantize_row(values, layout, page + layout.code_offset(head, offset),
                     reinterpret_cast<std::uint16_t*>(page + layout.pair_offset(head, offset)));
    }
}

void AppendJob::write(std::size_t token) const {
    const AppendMemory& m = memory_;
    const std::int64_t head_elements = std::int64_t{m.block_size} * m.head_dim;
    const std::int64_t block = m.slots[token] / m.block_size;
    const std::int64_t offset = m.slots[token] % m.block_size;
    const auto row = static_cast<std::int64_t>(token);
    std::int64_t at = block * 2 * m.kv_heads * head_elements + offset * m.head_dim;
    for (int head = 0; head < m.kv_heads; ++head, at += head_elements) {
        const std::int64_t column = std::int64_t{head} * m.head_dim;
        convert(m.keys, m.source_type, row * m.key_stride + column, m.pages, m.page_type, at,
                m.head_dim);
        convert(m.values, m.source_type, row * m.value_stride + column, m.pages, m.page_type,
                at + m.kv_heads * head_elements, m.head_dim);
    }
}

}  // namespace tandem

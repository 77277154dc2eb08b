// Writes new keys and values into their slots of one layer's pages.
#pragma once

#include <cstdint>
#include <span>

#include "dtype.hpp"
#include "job.hpp"
#include "quantized_page.hpp"
#include "scratch.hpp"

namespace tandem {

// Memory of one call; but for the slots it must outlive its job.
struct AppendMemory {
    const void* keys;  // [tokens, kv_heads, head_dim]; a token's heads lie together
    const void* values;
    std::int64_t key_stride;  // from token to token, in elements
    std::int64_t value_stride;
    DType source_type;
    std::span<const std::int64_t> slots;  // [tokens]; block * block_size + offset
    void* pages;  // [num_blocks, 2, kv_heads, block_size, head_dim], or as in QuantizedPage
    DType page_type;
    std::int64_t num_blocks;
    int kv_heads;
    int block_size;
    int head_dim;
};

class AppendJob final : public Job {
  public:
    // Copies the slots: what is checked is what is written to.
    // Throws std::invalid_argument if a slot does not exist, or the shape cannot be quantized.
    // Each slot may occur once; nothing beside a token's own bytes is touched.
    AppendJob(const AppendMemory& memory, int num_threads, BufferStore& buffers);

  private:
    void run_part(int part) override;
    void write(std::size_t token) const;
    void write_quantized(std::size_t token) const;
    QuantizedPage quantized_page() const;

    AppendMemory memory_;
    Borrowed<std::int64_t> slots_;
    std::size_t parts_;
};

}  // namespace tandem

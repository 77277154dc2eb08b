// Any bytes as the arrays of decode or prefill attention: they are refused with
// std::invalid_argument, or the result is that of a plain computation which reads the arrays
// without the plan. Memory is of exactly the size that may be touched, so that a sanitizer finds
// every access outside.
//
// Built with libFuzzer where the compiler has it, else with fuzz_driver.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "attention.hpp"
#include "check.hpp"
#include "convert.hpp"
#include "fuzz_target.hpp"
#include "plain_pages.hpp"
#include "pool.hpp"
#include "prefill.hpp"
#include "prefill_plan.hpp"

namespace {

using namespace tandem;

constexpr int kMostElements = 1 << 16;  // of queries or pages: larger ones the binding would refuse
constexpr float kScale = 0.25f;

class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

    template <class T>
    T raw() {
        T value{};
        const std::size_t taken = std::min(left_, sizeof value);
        if (taken > 0) std::memcpy(&value, data_, taken);
        data_ += taken;
        left_ -= taken;
        return value;
    }
    int below(int end) { return raw<std::uint8_t>() % end; }

    // Mostly a small number, at times any.
    template <class T>
    T integer(int end) {
        const int tag = below(256);
        return tag < 8 ? raw<T>() : static_cast<T>(tag < 12 ? -tag : below(end));
    }

    template <class T>
    std::vector<T> integers(std::size_t count, int end) {
        std::vector<T> values(count);
        for (T& value : values) value = integer<T>(end);
        return values;
    }

  private:
    const std::uint8_t* data_;
    std::size_t left_;
};

struct Input {
    AttentionShape shape;
    DType type;
    int num_threads;
    std::int64_t num_blocks;
    std::int32_t window;
    std::vector<std::int32_t> query_start, positions, table, index;
    std::vector<std::int64_t> tokens;
    bool selects_tokens;

    AttentionArrays arrays() const {
        AttentionArrays a{};
        a.query_start = query_start;
        a.positions = positions;
        a.block_table = table;
        a.block_index = index;
        a.token_index = tokens;
        a.selects_tokens = selects_tokens;
        a.window = window;
        return a;
    }
    std::size_t rows() const { return query_start.size() - 1; }
    std::size_t width() const { return rows() ? table.size() / rows() : 0; }
};

// Half of the inputs have arrays that fit each other but for a few entries: others go no further
// than the first check.
Input read_input(Bytes& bytes, int most_tokens) {
    Input in{};
    const int kv_heads = 1 + bytes.below(3);
    in.shape.kv_heads = bytes.below(64) ? kv_heads : bytes.raw<std::int32_t>();
    in.shape.heads = bytes.below(64) ? kv_heads * (1 + bytes.below(5)) : bytes.raw<std::int32_t>();
    in.shape.block_size = bytes.below(64) ? 1 + bytes.below(20) : bytes.raw<std::int32_t>();
    in.shape.head_dim = bytes.below(64) ? 4 * (1 + bytes.below(9)) : bytes.raw<std::int32_t>();
    in.type = static_cast<DType>(bytes.below(6));
    if (is_quantized(in.type)) in.shape.code_bits = in.type == DType::kInt8 ? 8 : 4;
    if (!bytes.below(64)) in.shape.code_bits = bytes.raw<std::int32_t>();
    in.num_threads = bytes.below(64) ? 1 + bytes.below(5) : bytes.raw<std::int32_t>();
    in.num_blocks = bytes.below(16);
    in.window = bytes.below(2) ? bytes.integer<std::int32_t>(60) : 0;
    const int rows = bytes.below(6), width = bytes.below(7);
    const bool orderly = bytes.below(2), indexed = bytes.below(2);
    in.selects_tokens = bytes.below(2);
    in.query_start = {0};
    for (int r = 0; r < rows; ++r) {
        const int count = bytes.below(most_tokens + 1);
        int position = bytes.below(1 + width * std::clamp(in.shape.block_size, 0, 20));
        for (int t = 0; t < count; ++t, position += bytes.below(2))
            in.positions.push_back(orderly ? position : bytes.integer<std::int32_t>(130));
        in.query_start.push_back(orderly ? static_cast<std::int32_t>(in.positions.size())
                                         : bytes.integer<std::int32_t>(12));
    }
    in.table = bytes.integers<std::int32_t>(std::size_t(rows) * width, 16);
    for (int r = 0; indexed && r < rows; ++r)
        for (int j = 0, next = 0; j < width; ++j, ++next) {
            next += bytes.below(2);
            in.index.push_back(orderly ? next : bytes.integer<std::int32_t>(9));
        }
    if (in.selects_tokens) in.tokens = bytes.integers<std::int64_t>(in.positions.size(), 20);
    for (auto* array : {&in.query_start, &in.positions, &in.index, &in.table})
        if (!array->empty() && bytes.below(24) == 1)
            (*array)[bytes.raw<std::uint8_t>() % array->size()] = bytes.raw<std::int32_t>();
    return in;
}

// Memory of exactly `count` elements, and their values as the kernel sees them.
class Numbers {
  public:
    Numbers(std::int64_t count, DType type)
        : memory_(new char[std::size_t(count) * element_bytes(type)]), values_(count) {
        std::uint32_t state = 1;
        for (std::int64_t i = 0; i < count; ++i) {
            state = state * 1664525u + 1013904223u;
            const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
            char* at = memory_.get() + i * element_bytes(type);
            if (type == DType::kFloat32) {
                values_[i] = value;
                std::memcpy(at, &value, sizeof value);
                continue;
            }
            if (type == DType::kFloat8) {
                const std::uint8_t code = to_float8(value);
                values_[i] = from_float8(code);
                std::memcpy(at, &code, sizeof code);
                continue;
            }
            const bool half = type == DType::kFloat16;
            const std::uint16_t bits = half ? to_half(value) : to_bfloat(value);
            values_[i] = half ? from_half(bits) : from_bfloat(bits);
            std::memcpy(at, &bits, sizeof bits);
        }
    }
    // Quantized pages; their values come in the order in which pages of floats have them.
    Numbers(std::int64_t num_pages, const QuantizedPage& layout)
        : memory_(new char[std::size_t(num_pages * layout.page_bytes())]) {
        const std::int64_t size = layout.page_bytes();
        std::uint32_t state = 1;
        const auto next = [&] { return state = state * 1664525u + 1013904223u; };
        for (std::int64_t i = 0; i < num_pages * size; ++i)
            memory_[i] = static_cast<char>(next() >> 24);
        for (std::int64_t i = layout.pair_offset(0, 0); i < num_pages * size; i += 2) {
            if (i % size == 0) i += layout.pair_offset(0, 0);
            const std::uint16_t bits = to_half(static_cast<float>(next() >> 8) * 0x1p-31f);
            std::memcpy(memory_.get() + i, &bits, sizeof bits);
        }
        for (std::int64_t page = 0; page < num_pages; ++page)
            for (int head = 0; head < 2 * layout.kv_heads; ++head)
                for (int token = 0; token < layout.block_size; ++token)
                    for (int i = 0; i < layout.head_dim; ++i)
                        values_.push_back(
                            read_element(layout, memory_.get() + page * size, head, token, i));
    }
    const void* data() const { return memory_.get(); }
    const float* value(std::int64_t i) const { return values_.data() + i; }

  private:
    std::unique_ptr<char[]> memory_;
    std::vector<float> values_;
};

// Where in the pages, for KV head 0, the keys lie that a token sees; values lie half a page behind.
std::vector<std::int64_t> seen_keys(const Input& in, std::size_t row, std::int64_t position) {
    const AttentionShape& s = in.shape;
    std::vector<std::int64_t> keys;
    for (std::size_t j = 0; j < in.width(); ++j) {
        const std::size_t at = row * in.width() + j;
        const std::int64_t block = in.index.empty() ? std::int64_t(j) : in.index[at];
        // Blocks ascend up to the first that is not seen; entries behind it are padding.
        if (block * s.block_size > position) break;
        for (int slot = 0; slot < s.block_size; ++slot) {
            const std::int64_t key = block * s.block_size + slot;
            if (key > position || (in.window && key <= position - in.window)) continue;
            keys.push_back(in.table[at] * s.page_elements() + std::int64_t{slot} * s.head_dim);
        }
    }
    return keys;
}

void check_head(const Input& in, const Numbers& pages, const std::vector<std::int64_t>& keys,
                int head, const float* query, const float* out, float lse) {
    const AttentionShape& s = in.shape;
    const std::int64_t first = std::int64_t{head / s.group()} * s.block_size * s.head_dim;
    std::vector<double> sums(s.head_dim), scores;
    double weight = 0;
    for (const std::int64_t key : keys) {
        double score = 0;
        for (int i = 0; i < s.head_dim; ++i)
            score += double{query[i]} * *pages.value(key + first + i);
        const double share = std::exp(score * kScale);  // the numbers are small
        weight += share;
        const float* values = pages.value(key + first + s.page_elements() / 2);
        for (int i = 0; i < s.head_dim; ++i) sums[i] += share * values[i];
    }
    if (keys.empty()) {
        CHECK(lse == -std::numeric_limits<float>::infinity());
        for (int i = 0; i < s.head_dim; ++i) CHECK(out[i] == 0);
        return;
    }
    CHECK(std::abs(lse - std::log(weight)) < 1e-4);
    for (int i = 0; i < s.head_dim; ++i) CHECK(std::abs(out[i] - sums[i] / weight) < 1e-4);
}

void check_result(const Input& in, const Numbers& queries, const Numbers& pages, const float* out,
                  const float* lse) {
    const AttentionShape& s = in.shape;
    for (std::size_t row = 0; row < in.rows(); ++row)
        for (std::int32_t t = in.query_start[row]; t < in.query_start[row + 1]; ++t) {
            const auto keys = seen_keys(in, row, in.positions[t]);
            const std::int64_t query = in.selects_tokens ? in.tokens[t] : t;
            for (int head = 0; head < s.heads; ++head) {
                const std::int64_t at = std::int64_t{t} * s.heads + head;
                check_head(in, pages, keys, head,
                           queries.value((query * s.heads + head) * s.head_dim),
                           out + at * s.head_dim, lse[at]);
            }
        }
}

// Whether it ran: what is too large for a test does not.
template <class Job, class Plan>
bool run(const Input& in, Isa isa, Pool& pool) {
    auto plan = std::make_shared<const Plan>(in.shape, in.arrays(), in.num_threads);
    const std::int64_t width = std::int64_t{in.shape.heads} * in.shape.head_dim;
    const std::int64_t page = in.shape.page_elements();
    if (width > kMostElements || plan->num_queries_needed > kMostElements / width ||
        page > kMostElements)
        return false;
    const Numbers queries(plan->num_queries_needed * width, DType::kFloat32);
    const AttentionShape& s = in.shape;
    // The binding takes the type from the shape.
    const DType type = s.code_bits == 8 ? DType::kInt8 : s.code_bits ? DType::kInt4 : in.type;
    if (s.code_bits == 0 && is_quantized(type)) return false;
    const Numbers pages =
        s.code_bits ? Numbers(in.num_blocks, {s.code_bits, s.kv_heads, s.block_size, s.head_dim})
                    : Numbers(in.num_blocks * page, type);
    const std::size_t heads = std::size_t(plan->num_tokens) * in.shape.heads;
    const std::unique_ptr<float[]> out(new float[heads * in.shape.head_dim]), lse(new float[heads]);
    std::fill_n(out.get(), heads * in.shape.head_dim, std::nanf(""));
    std::fill_n(lse.get(), heads, std::nanf(""));
    AttentionMemory memory{};
    memory.queries = queries.data();
    memory.query_stride = width;
    memory.query_type = DType::kFloat32;
    memory.pages = pages.data();
    memory.page_type = type;
    memory.num_blocks = in.num_blocks;
    memory.out = out.get();
    memory.lse = lse.get();
    Job job(plan, memory, kScale, 0.0f, isa, pool.buffers());
    pool.run(job);
    check_result(in, queries, pages, out.get(), lse.get());
    return true;
}

FuzzCounts counts;

}  // namespace

const FuzzCounts& fuzz_counts() { return counts; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Pool pool({2, false, std::chrono::microseconds(10)});
    Bytes bytes(data, size);
    const std::vector<Isa> isas = supported_isas();
    const Isa isa = isas[bytes.below(static_cast<int>(isas.size()))];
    const bool prefills = bytes.below(2);
    const Input in = read_input(bytes, prefills ? 30 : 4);
    try {
        if (prefills)
            counts.prefill += run<PrefillJob, PrefillPlan>(in, isa, pool);
        else
            counts.decode += run<AttentionJob, AttentionPlan>(in, isa, pool);
    } catch (const std::invalid_argument&) {  // refused
    }
    return 0;
}

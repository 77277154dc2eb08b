#include "linear.hpp"

#include <algorithm>
#include <utility>

#include "divide.hpp"
#include "kernel_set.hpp"
#include "require.hpp"
#include "spin_until.hpp"
#include "thread_scratch.hpp"

namespace tandem {
namespace {

constexpr int kPartsPerThread = 8;
constexpr std::int64_t kMinPartBytes = 64 << 10;  // of weights that are streamed
constexpr int kMaxPanelSteps = 4;                 // of weight rows in a part
constexpr int kStreamChunk = 8 * kTileStep;  // weight rows that meet a block of x one after another
constexpr int kInputStep = 1024;             // of blocks that are streamed: whole groups
// Of x that is multiplied at a time by streamed weights: half of a second-level cache. In blocks
// that the first-level cache holds, weights are not read in the order in which they lie, and lanes
// are added up more often: 0.8 to 0.95 of the rate.
constexpr int kStreamedBytes = 256 << 10;
constexpr int kMostWideRows = 48;  // of x; beyond, sums of a wide part would leave the caches
constexpr int kIntegerRows = 8;    // of x that meet a chunk of weights: a block of them stays in L1

int ranges(LinearEnd end) { return end == LinearEnd::kGated ? 2 : 1; }

int ceil_div(std::int64_t a, std::int64_t b) { return static_cast<int>(divide_up(a, b)); }

int round_up(int value, int step) { return ceil_div(value, step) * step; }

// Whether weights go straight to the registers; else panels are faster, found by measuring.
bool streams(const LinearWeight& weight, const LinearCall& call) {
    return call.rounds_x || call.rows <= (is_quantized(weight.type) ? 6 : 12);
}

int streamed_inputs(const LinearWeight& weight, const LinearCall& call) {
    if (call.rows <= 2) return weight.inputs;
    if (call.rounds_x) return kInputStep;
    const int fitting = kStreamedBytes / static_cast<int>(sizeof(float)) / call.rows;
    return std::max(fitting / kInputStep, 1) * kInputStep;
}

// Of x and of a weight row that are multiplied at a time; in panels, so much of x as the
// first-level cache holds beside the weights.
int block_inputs(const LinearWeight& weight, const LinearCall& call, const LinearKernels& kernels) {
    if (streams(weight, call)) return streamed_inputs(weight, call);
    const int fitting = call.rows > kernels.width ? kMaxBlockInputs / 2 : kMaxBlockInputs;
    return std::min(fitting, kernels.panel.most_inputs);
}

// Columns of y in each part but the last: enough parts that a busy thread's are taken by others.
int share_columns(const LinearWeight& weight, const LinearCall& call, const LinearKernels& kernels,
                  int num_threads) {
    const int columns = weight.outputs / ranges(call.end);
    const int even = ceil_div(columns, std::int64_t{num_threads} * kPartsPerThread);
    if (streams(weight, call)) {
        const std::int64_t bytes = weight_bytes(weight.type, weight.inputs) * ranges(call.end);
        const int least = static_cast<int>(
            std::max<std::int64_t>(kMinPartBytes / std::max<std::int64_t>(bytes, 1), 1));
        const int most = call.rows > kMostWideRows ? kStreamChunk : columns;
        return std::min({round_up(std::max(even, least), kTileStep), most, columns});
    }
    const int step = kernels.panel.weight_rows;
    const int most = kMaxPanelSteps * step / ranges(call.end);
    return std::min({round_up(even, step), most, columns});
}

const LinearCall& checked_call(const LinearCall& c, const LinearWeight& w) {
    require(c.rows > 0, "x must have rows");
    require(c.end != LinearEnd::kGated || w.outputs % 2 == 0,
            "a gated map must have an even number of outputs");
    require(c.x_stride >= w.inputs || c.rows == 1, "rows of x must not overlap");
    require(c.y_stride >= w.outputs / ranges(c.end) || c.rows == 1, "rows of y must not overlap");
    const bool activates = c.end == LinearEnd::kGated || c.end == LinearEnd::kActivate;
    require(!c.rounds_x || w.type == WeightType::kInt8, "only x of int8 weights can be rounded");
    require(activates || c.activation == Activation::kNone,
            "an activation needs an end that activates");
    return c;
}

}  // namespace

struct LinearJob::Share {
    int first;
    int count;
    int ranges;
};

LinearJob::LinearJob(const LinearWeight& weight, const LinearCall& call, Isa isa, int num_threads,
                     BufferStore& buffers)
    : Job(ceil_div(checked_weight(weight).outputs / ranges(checked_call(call, weight).end),
                   share_columns(weight, call, kernel_set(isa).linear, num_threads))),
      weight_(weight),
      call_(call),
      kernels_(kernel_set(isa).linear),
      integer_kernels_(kernel_set(isa).integer),
      streams_(streams(weight, call)),
      columns_(weight.outputs / ranges(call.end)),
      share_columns_(share_columns(weight, call, kernels_, num_threads)),
      padded_rows_(round_up(call.rows, kernels_.width)),
      block_inputs_(block_inputs(weight, call, kernels_)),
      num_units_(count_units()),
      prepared_(buffers, prepared_floats()) {}

int LinearJob::count_units() const {
    if (!streams_) return ceil_div(padded_rows_, 2 * kernels_.width);
    return is_quantized(weight_.type) ? call_.rows : 0;
}

// Of a panel's rows at the inputs of a block, or of several that are whole.
std::size_t LinearJob::packed_floats(int rows, int inputs) const {
    const std::size_t elements = std::size_t(rows) * round_up(inputs, kernels_.panel.inputs);
    return elements * kernels_.panel.x_bytes / sizeof(float);
}

std::size_t LinearJob::prepared_floats() const {
    if (!streams_) return packed_floats(padded_rows_, weight_.inputs);
    if (!is_quantized(weight_.type)) return 0;
    const std::size_t sums = std::size_t(call_.rows) * row_groups();
    if (!call_.rounds_x) return sums;
    const std::size_t code_bytes = integer_kernels_.code_bytes;
    return 2 * sums + std::size_t(call_.rows) * weight_.inputs * code_bytes / sizeof(float);
}

void LinearJob::run_part(int part) {
    FloatBuffer& scratch = thread_scratch();
    prepare();
    const int first = part * share_columns_;
    const Share share{first, std::min(share_columns_, columns_ - first), ranges(call_.end)};
    if (streams_)
        stream(share, scratch);
    else
        multiply_panels(share, scratch);
}

// All parts need all of x prepared, so every part helps with it first.
void LinearJob::prepare() {
    if (units_done_.load(std::memory_order_acquire) == num_units_) return;
    for (int unit; (unit = next_unit_.fetch_add(1, std::memory_order_relaxed)) < num_units_;) {
        prepare_unit(unit);
        units_done_.fetch_add(1, std::memory_order_release);
    }
    // Others are at work on the rest.
    spin_until([&] { return units_done_.load(std::memory_order_acquire) == num_units_; });
}

void LinearJob::prepare_unit(int unit) {
    if (call_.rounds_x) return round_row(unit);
    if (streams_)
        return kernels_.sum_groups({.x = call_.x + unit * call_.x_stride,
                                    .group = weight_.group,
                                    .groups = static_cast<int>(row_groups()),
                                    .sums = prepared_.data() + unit * row_groups()});
    const int first_row = unit * 2 * kernels_.width;
    const int rows = std::min(2 * kernels_.width, call_.rows - first_row);
    for (int first = 0; first < weight_.inputs; first += block_inputs_) {
        const int count = std::min(block_inputs_, weight_.inputs - first);
        kernels_.pack({.x = call_.x + first_row * call_.x_stride,
                       .x_stride = call_.x_stride,
                       .rows = rows,
                       .first = first,
                       .count = count,
                       .out = prepared_.data() + packed_floats(padded_rows_, first) +
                              packed_floats(first_row, count)});
    }
}

// Behind the sums of all rows lie their scales, and then their codes.
void LinearJob::round_row(int row) {
    const std::int64_t all = call_.rows * row_groups();
    char* codes = reinterpret_cast<char*>(prepared_.data() + 2 * all);
    integer_kernels_.round(
        {.x = call_.x + row * call_.x_stride,
         .group = weight_.group,
         .groups = static_cast<int>(row_groups()),
         .codes = codes + std::int64_t{row} * weight_.inputs * integer_kernels_.code_bytes,
         .scales = prepared_.data() + all + row * row_groups(),
         .sums = prepared_.data() + row * row_groups()});
}

void LinearJob::stream(const Share& share, FloatBuffer& scratch) const {
    const std::int64_t stride = std::int64_t{share.ranges} * share.count;
    float* sums = scratch.reserve(stride * call_.rows);
    for (int range = 0; range < share.ranges; ++range)
        for (int chunk = 0; chunk < share.count; chunk += kStreamChunk) {
            const int count = std::min(kStreamChunk, share.count - chunk);
            stream_chunk(weight_rows(weight_, range * columns_ + share.first + chunk, count),
                         sums + range * share.count + chunk, stride);
        }
    for (int row = 0; row < call_.rows; ++row)
        end(share, row, sums + row * stride, sums + row * stride + share.count);
}

void LinearJob::stream_chunk(const WeightRows& weights, float* sums, std::int64_t stride) const {
    if (call_.rounds_x) return stream_integers(weights, sums, stride);
    for (int first = 0; first < weight_.inputs; first += block_inputs_)
        kernels_.stream[int(weight_.type)](
            {.weights = weights,
             .first = first,
             .count = std::min(block_inputs_, weight_.inputs - first),
             .x = call_.x,
             .x_stride = call_.x_stride,
             .rows = call_.rows,
             .sums = prepared_.data(),
             .out = sums,
             .out_stride = stride,
             .adds = first > 0});
}

void LinearJob::stream_integers(const WeightRows& weights, float* sums, std::int64_t stride) const {
    const std::int64_t groups = row_groups(), all = call_.rows * groups;
    const char* codes = reinterpret_cast<const char*>(prepared_.data() + 2 * all);
    const std::int64_t row_bytes = std::int64_t{weight_.inputs} * integer_kernels_.code_bytes;
    for (int first = 0; first < weight_.inputs; first += block_inputs_)
        for (std::int64_t row = 0; row < call_.rows; row += kIntegerRows)
            integer_kernels_.multiply(
                {.weights = weights,
                 .first = first,
                 .count = std::min(block_inputs_, weight_.inputs - first),
                 .x = codes + row * row_bytes,
                 .scales = prepared_.data() + all + row * groups,
                 .sums = prepared_.data() + row * groups,
                 .rows = static_cast<int>(std::min<std::int64_t>(kIntegerRows, call_.rows - row)),
                 .out = sums + row * stride,
                 .out_stride = stride,
                 .adds = first > 0});
}

void LinearJob::multiply_panels(const Share& share, FloatBuffer& scratch) const {
    const int padded = round_up(share.count, kernels_.panel.weight_rows);
    const std::int64_t sums_stride = padded_rows_ + 16;  // no power of two
    const std::int64_t block_floats = std::int64_t{padded} * kUnpackedStride;
    const std::int64_t sums_floats = padded * sums_stride;
    const std::int64_t line_stride = round_up(padded, kernels_.width);
    const std::int64_t range_lines = kTurnedRows * line_stride;
    float* weights = scratch.reserve((block_floats + sums_floats + range_lines) * share.ranges);
    float* sums = weights + share.ranges * block_floats;
    float* lines = sums + share.ranges * sums_floats;
    for (int range = 0; range < share.ranges; ++range)
        std::fill(weights + range * block_floats + std::int64_t{share.count} * kUnpackedStride,
                  weights + (range + 1) * block_floats, 0.0f);
    for (int first = 0; first < weight_.inputs; first += block_inputs_)
        for (int range = 0; range < share.ranges; ++range)
            multiply_block(share, range, first, weights + range * block_floats,
                           sums + range * sums_floats, sums_stride);
    for (int first = 0; first < call_.rows; first += kTurnedRows) {
        for (int range = 0; range < share.ranges; ++range)
            kernels_.turn({.sums = sums + range * sums_floats + first,
                           .sums_stride = sums_stride,
                           .count = padded,
                           .lines = lines + range * range_lines,
                           .line_stride = line_stride});
        const int rows = std::min(kTurnedRows, call_.rows - first);
        for (int row = 0; row < rows; ++row) {
            const float* line = lines + row * line_stride;
            end(share, first + row, line, line + range_lines);
        }
    }
}

void LinearJob::multiply_block(const Share& share, int range, int first, float* weights,
                               float* sums, std::int64_t sums_stride) const {
    const WeightRows rows = weight_rows(weight_, range * columns_ + share.first, share.count);
    const int count = std::min(block_inputs_, weight_.inputs - first);
    const int next = first + count;
    const int next_count = std::min(block_inputs_, weight_.inputs - next);
    kernels_.unpack_panel[int(weight_.type)]({.weights = rows,
                                              .first = first,
                                              .count = count,
                                              .out = weights,
                                              .out_stride = kUnpackedStride});
    const char* data = static_cast<const char*>(rows.data);
    kernels_.multiply({.weights = weights,
                       .type = weight_.type,
                       .count = round_up(share.count, kernels_.panel.weight_rows),
                       .x = prepared_.data() + packed_floats(padded_rows_, first),
                       .padded_rows = padded_rows_,
                       .inputs = count,
                       .sums = sums,
                       .sums_stride = sums_stride,
                       .adds = first > 0,
                       .next = next_count > 0 ? data + weight_bytes(weight_.type, next) : nullptr,
                       .next_stride = rows.row_bytes,
                       .next_bytes = static_cast<int>(weight_bytes(weight_.type, next_count)),
                       .next_rows = share.count});
}

void LinearJob::end(const Share& share, int row, const float* sums, const float* up_sums) const {
    const float* bias = weight_.bias ? weight_.bias + share.first : nullptr;
    kernels_.end({.sums = sums,
                  .bias = bias,
                  .up_sums = up_sums,
                  .up_bias = bias && share.ranges > 1 ? bias + columns_ : nullptr,
                  .y = call_.y + row * call_.y_stride + share.first,
                  .count = share.count,
                  .end = call_.end,
                  .activation = call_.activation});
}

}  // namespace tandem

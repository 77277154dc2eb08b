// The interface between linear maps and their kernels, compiled per instruction set.
#pragma once

#include <cstdint>

namespace tandem {

enum class WeightType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kInt8, kInt4 };

enum class LinearEnd : std::uint8_t {
    kStore,
    kAdd,       // y += x W^T + bias
    kGated,     // W = [gate; up] one above the other: y = activation(gate) * up
    kActivate,  // y = activation(x W^T + bias)
};

// kGelu: with the error function; kGeluTanh: its approximation.
enum class Activation : std::uint8_t { kNone, kSilu, kGelu, kGeluTanh, kRelu };

inline constexpr int kTileStep = 12;         // weight rows of most kernels' panel products
inline constexpr int kMaxBlockInputs = 512;  // of a panel
inline constexpr int kUnpackedStride = kMaxBlockInputs + 16;  // floats; no power of two

// Consecutive rows of a weight matrix.
struct WeightRows {
    const void* data;
    std::int64_t row_bytes;
    const std::uint16_t* scales;  // [count, groups]; of quantized types only, as are:
    const std::uint8_t* zeros;    // [count, groups]
    int group;
    int groups;  // of a row
    int inputs;
    int count;
};

// out[row][i] (+)= x[row] . weights[i] over a block of inputs, for few rows of x.
struct StreamRun {
    WeightRows weights;
    int first;  // input; of quantized types a group's first, and
    int count;  // whole groups
    const float* x;
    std::int64_t x_stride;
    int rows;
    const float* sums;  // [rows, groups]: `sum_groups` of x; quantized types only
    float* out;
    std::int64_t out_stride;
    bool adds;  // to out; else it is overwritten
};

// sums[g] = minus the sum of group g of x.
struct SumRun {
    const float* x;
    int group;
    int groups;
    float* sums;
};

// Inputs first..first + count - 1 of every weight row, as float32 or as `multiply` takes them.
struct UnpackRun {
    WeightRows weights;
    int first;
    int count;
    float* out;               // [weights.count, out_stride]: memory of that size
    std::int64_t out_stride;  // at least `count`
};

// x of `rows` rows at inputs first..first + count - 1, as panels: [panel][input][row of the panel],
// rows padded to whole vectors with any numbers; or as else `multiply` takes it.
struct PackRun {
    const float* x;
    std::int64_t x_stride;
    int rows;
    int first;
    int count;
    float* out;
};

// sums[weight row][x row] (+)= weights . x over one block of inputs.
struct PanelRun {
    const float* weights;  // [count, kUnpackedStride]: of `unpack_panel`
    WeightType type;       // of which they were unpacked
    int count;             // a multiple of `PanelShape::weight_rows`
    const float* x;        // of `PackRun`
    int padded_rows;       // of x
    int inputs;            // at most `PanelShape::most_inputs`
    float* sums;           // [count, sums_stride]
    std::int64_t sums_stride;
    bool adds;         // to sums; else they are overwritten
    const char* next;  // weights needed next, to be prefetched: `next_rows` runs; may be null
    std::int64_t next_stride;
    int next_bytes;
    int next_rows;
};

inline constexpr int kTurnedRows = 4;

// Sums of kTurnedRows rows of x, a row after the other.
struct TurnRun {
    const float* sums;  // of `PanelRun`, at the first of the rows
    std::int64_t sums_stride;
    int count;                 // weight rows
    float* lines;              // [kTurnedRows, line_stride]
    std::int64_t line_stride;  // at least `count`, rounded up to whole vectors
};

// What becomes of one row's sums.
struct EndRun {
    const float* sums;     // [count]
    const float* bias;     // [count], or null
    const float* up_sums;  // kGated, as is:
    const float* up_bias;
    float* y;  // [count]
    int count;
    LinearEnd end;
    Activation activation;
};

// What `multiply` works in.
struct PanelShape {
    int weight_rows;  // padded to a multiple of this
    int inputs;       // of x as packed: the same
    int most_inputs;  // of a block; a multiple of `inputs`
    int x_bytes;      // of an element of x as packed
};

struct LinearKernels {
    int width;  // of a vector of x's rows, in floats
    PanelShape panel;
    void (*stream[5])(const StreamRun&);  // by WeightType
    void (*unpack[5])(const UnpackRun&);  // as float32
    void (*unpack_panel[5])(const UnpackRun&);
    void (*sum_groups)(const SumRun&);
    void (*pack)(const PackRun&);
    void (*multiply)(const PanelRun&);
    void (*turn)(const TurnRun&);
    void (*end)(const EndRun&);
};

extern const LinearKernels kPortableLinear;
#if defined(__x86_64__)
extern const LinearKernels kAvx2Linear;
extern const LinearKernels kAvx512Linear;
extern const LinearKernels kAmxLinear;
#elif defined(__aarch64__)
extern const LinearKernels kNeonLinear;
#endif

}  // namespace tandem

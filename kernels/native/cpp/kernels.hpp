// The compute kernels as one table per instruction set. Every table gives the same bits.
#pragma once

#include "activation.hpp"
#include "cache_format.hpp"
#include "formats.hpp"
#include "quantize.hpp"
#include "source.hpp"
#include "step.hpp"

namespace native {

constexpr int kLinearRows = 64;  // rows of a task: its weights are read once for so many
constexpr int kFewRows = 8;      // whose products take about as long as reading the weights

// Products of weight tiles with rows. Quantized formats read `blocks`, plain ones `x`.
struct LinearArgs {
    const void* tiles;       // of the tile's format: `groups` (or `columns` for plain formats) steps each
    const void* blocks;      // Activation<planes>, laid out as activation_index says
    const float* x;          // [rows][x_stride]
    const float* bias;       // [outputs] or null
    const float* residual;   // [rows][residual_stride] or null: added to the result
    float* out;              // [rows][out_stride]
    ptrdiff_t x_stride, residual_stride, out_stride;
    float factor;            // of the products, before bias and residual
    int columns, groups;
    int outputs;             // valid outputs: the last tile may hold fewer than 16
    int rows;                // rows of the step
    int tile_begin, tile_end, row_begin, row_end;  // this call's part: at most kLinearRows rows, whole blocks
};

// Attention of some rows of one sequence, at consecutive positions, over the keys of one key head.
struct AttentionArgs {
    const float* q;          // first row, first query head of the group; [rows][q_stride]
    float* out;              // likewise
    ptrdiff_t q_stride, out_stride;
    const void* keys;        // the layer's keys of block 0 and this key head; see paged_cache.hpp
    const void* values;
    const void* next_keys;   // null, or the first keys of the task that comes next
    const int32_t* table;    // block table of the sequence
    ptrdiff_t block_stride;  // bytes from one block to the next
    ptrdiff_t scales;        // bytes from a block's keys to their scales, [block_size], and then those of its values
    int block_size, head_dim, value_stride;
    int rows, heads;         // heads: query heads that share the key head
    int position;            // of the first row
    int window;              // keys that a row sees at most (no window: 1 << 30)
    float scale;             // of scores; without a cap log2(e) included
    float cap;               // 0, or capped scores are cap * tanh(score), log2(e) included
    const float* sinks;      // [heads] or null: scores without a value
    int span_begin, span_end;  // spans of kSpan keys to attend to
    float* partial;          // null, or where the one span's unfinished result goes instead of `out`
    float* scratch;          // attention_scratch floats
};

constexpr float kLog2E = 0x1.715476p+0f;
constexpr int kTileRows = 16;  // rows that share the keys they load
constexpr int kSpan = 256;    // keys that share a softmax before spans are joined; part of the numerics
constexpr int kScores = kSpan + kLanes;  // scores of a query vector; the padding keeps vectors in different cache sets

// An unfinished result of one query vector: value_stride sums, the maximum, the sum of weights, padding.
static inline size_t partial_size(int value_stride) { return (size_t)value_stride + kLanes; }
static inline size_t attention_scratch(int vectors, int head_dim, int value_stride) {
    return (size_t)vectors * (padded(head_dim, kLanes) + kScores + 2 * partial_size(value_stride)) +
           (size_t)kGroup * value_stride + 2 * kSpan;
}

// What one sampler task reads: a part of one row.
struct SampleArgs {
    const float* logits;
    int begin, end;          // token ids; begin is a multiple of kSampleBlock
    float best;              // best score of the row
    float temperature;
    uint32_t low_key, high_key;
};

constexpr int kSampleBlock = 64;  // scores that share a maximum

struct Winner {
    float score;
    int32_t token;
};

// Products with a gate and an up projection of the same format, then the gated values, quantized in one plane. `tiles`
// are those of the gate; tile_begin and tile_end count groups of 32 outputs.
struct GatedArgs : LinearArgs {
    const void* up_tiles;
    const float* up_bias;
    float up_factor;
    Gate gate;
    void* gated;             // Activation<1>, groups of 32 outputs
    int gated_groups;
};

struct Kernels {
    const char* name;
    void (*add_noise)(const float* z, const int32_t* ids, int count, uint32_t low_key, uint32_t high_key, float* out);
    void (*linear[kFormats][2])(const LinearArgs&);             // [format][planes - 1]
    void (*gated_linear[kPackedFormats][2])(const GatedArgs&);  // likewise
    void (*quantize[2])(const float* x, int columns, void* blocks, int row, int rows);  // [planes - 1]
    int32_t (*read)(const void* data, size_t bytes);  // all of it, 1,024 bytes at a time
    void (*round_to_half)(const float* x, int count, uint16_t* out);
    float (*round_to_int8)(const float* x, int count, int8_t* out);  // returns the scale
    void (*rms_norm)(const float* x, const float* weight, int runs, int length, float eps, float* out);
    void (*gated)(Gate kind, const float* gate, const float* up, int columns, float* out);
    void (*add)(const float* a, const float* b, int columns, float* out);
    void (*add_scaled)(const float* x, float factor, int columns, float* out);  // out += x * factor
    // preference: [experts], or null. chosen, weights: [used], from the first choice on.
    void (*route)(const float* logits, const float* preference, int experts, int used, bool sigmoid, bool over_all,
                  int32_t* chosen, float* weights);
    void (*scale)(const float* x, float factor, int columns, float* out);
    void (*cap)(const float* x, float limit, int columns, float* out);
    void (*center)(const float* x, int columns, float* out);
    // cos, sin: [turning / 2], for the first `turning` columns of each head.
    void (*rotate[2])(const float* x, const float* cos, const float* sin, int heads, int head_dim, int turning,
                      float* out);
    void (*attention[kCacheFormats])(const AttentionArgs&);
    void (*join_spans)(float* partials, int spans, ptrdiff_t span_stride, int head_dim, int value_stride,
                       const float* sink, float* out);  // sink: null if there is none
    void (*block_maxima)(const SampleArgs&, float* maxima);  // [blocks], NaN where a block holds one
    // Indices of scores with above < score <= upto, ascending; returns how many.
    int (*find)(const float* scores, int count, float above, float upto, int32_t* found);
    uint64_t (*mass)(const SampleArgs&);
    void (*draw)(const SampleArgs&, Winner* winner);  // keeps the given winner if nobody is better
    void (*score_weights)(const float* scores, int count, float best, float temperature, float* z, float* weights);
    void (*widen)(Format format, const void* values, int count, float* out);  // of a plain format
    // Whole groups of float values to codes, scales and minima.
    void (*pack_q8)(const float* values, int groups, const PackedArrays& out);
    void (*pack_q4)(const float* values, int groups, const PackedArrays& out);
    float (*pack_nf4)(const float* values, int groups, uint8_t* codes, float* scales);
    // Up to sixteen rows of a source from `first` on as a tile and those beside it. False: a row can't be held, as a scale,
    // or a value that must be, is not finite.
    bool (*repack)(const Source& source, int64_t first, int columns, void* tiles);
};

const Kernels* amx_kernels();     // null where the compiler cannot build them
const Kernels* avx512_kernels();  // likewise
const Kernels* avx2_kernels();
const Kernels* portable_kernels();

}  // namespace native

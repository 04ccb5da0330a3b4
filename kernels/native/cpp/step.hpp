// What crosses the border with Python for every step, and the recorded operations. Mirrored in kernels/native/library.py.
#pragma once

#include <cstdint>

namespace native {

// The arrays of kernels/interface.py's Batch and SamplingBatch.
struct Step {
    int32_t rows, samples, sequences, table_width;
    const int32_t *tokens, *positions, *slots, *sequence, *tables, *sample_rows;
    const float *temperature, *top_p, *min_p, *repetition, *presence, *frequency, *bias_values;
    const int32_t *top_k, *seen_offsets, *seen_ids, *seen_counts, *bias_offsets, *bias_ids;
    const uint64_t* seeds;
    const int64_t* positions_drawn;
    int32_t* sampled;  // [samples], out
};

enum class OpKind : int32_t {
    embedding, norm, gated, add, scale, cap, rope, kv_write, gather, quantize,  // row by row
    linear, gated_linear, attention, sample,
};

enum class Gate : int32_t { silu, gelu_tanh, gelu, clamped };

// A part of the columns of a buffer.
struct View {
    int32_t buffer, offset, columns;
};

struct Op {
    OpKind kind;
    int32_t samples;       // 1: works on the sample rows, 0: on the rows of the step
    int32_t planes;        // quantize, linear
    int32_t layer, window; // kv_write, attention
    int32_t interleaved;   // rope
    int32_t length;        // columns of what a norm is of, or of a head of rope
    int32_t turning;       // rope: the first columns of a head, which turn
    Gate gate;             // gated, gated_linear
    int32_t limit;         // rows of the matrix, positions of the rotation
    float number;          // eps of a norm, scale of attention, factor of scale, limit of cap
    float cap;             // of the scores of attention, 0 for none
    View x, y, out;        // y: second operand of add and kv_write, residual of linear; out of gated_linear: quantized
    View blocks;           // quantized rows: out of quantize, in of linear and gated_linear
    const void* weight;    // Matrix of embedding and linear, vector of norm
    const float *bias, *cos, *sin;
};

// Storage that lasts from step to step, one per value that is live at the same time.
struct Buffer {
    int32_t columns, planes;  // planes 0: float32 rows; 1 or 2: quantized rows
    int32_t samples;
};

}  // namespace native

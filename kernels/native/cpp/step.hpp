// What crosses the border with Python for every step, as in kernels/step.py, and the recorded operations, as in
// kernels/native/library.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace native {

constexpr size_t kStepAlignment = 16;

#define STEP_COUNTS(COUNT) \
    COUNT(rows) COUNT(samples) COUNT(tables) COUNT(table_width) COUNT(seen) COUNT(biased) COUNT(mask_words)

// Type, name and number of values of each array. What they hold stands in kernels/step.py.
#define STEP_ARRAYS(ARRAY)                                                                           \
    ARRAY(float, temperature, samples) ARRAY(int32_t, top_k, samples) ARRAY(float, top_p, samples)   \
    ARRAY(float, min_p, samples) ARRAY(float, repetition, samples) ARRAY(float, presence, samples)   \
    ARRAY(float, frequency, samples) ARRAY(uint64_t, seeds, samples)                                 \
    ARRAY(int64_t, draw_positions, samples) ARRAY(int32_t, sample_rows, samples)                     \
    ARRAY(int32_t, tokens, rows) ARRAY(int32_t, positions, rows) ARRAY(int32_t, slots, rows)         \
    ARRAY(int32_t, sequences, rows) ARRAY(int32_t, block_tables, tables * table_width)               \
    ARRAY(int32_t, seen_offsets, samples + 1) ARRAY(int32_t, seen_ids, seen)                         \
    ARRAY(int32_t, seen_counts, seen) ARRAY(int32_t, bias_offsets, samples + 1)                      \
    ARRAY(int32_t, bias_ids, biased) ARRAY(float, bias_values, biased)                               \
    ARRAY(uint32_t, mask, samples * mask_words)

// A step, as it lies in one buffer: the counts, then each array at the next multiple of kStepAlignment bytes.
struct Step {
#define COUNT(name) int32_t name = 0;
#define ARRAY(type, name, size) const type* name = nullptr;
    STEP_COUNTS(COUNT)
    STEP_ARRAYS(ARRAY)
#undef COUNT
#undef ARRAY

    // Finds the counts and arrays in a buffer of so many bytes. False: they are not all in it.
    bool find(const char* buffer, size_t bytes);
};

// Those up to combine work row by row.
#define OP_KINDS(F)                                                                                     \
    F(embedding) F(norm) F(gated) F(add) F(scale) F(cap) F(center) F(rope) F(kv_write) F(gather) F(quantize)      \
    F(route) F(combine)                                                                                  \
    F(linear) F(gated_linear) F(experts) F(attention) F(sample)
#define GATES(F) F(silu) F(gelu_tanh) F(gelu) F(clamped)

#define NAME(name) name,
enum class OpKind : int32_t { OP_KINDS(NAME) };
enum class Gate : int32_t { GATES(NAME) };
#undef NAME

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
    int32_t experts, used; // route, experts, combine: how many there are, and how many of them a row chooses
    int32_t over_all;      // route: scores are not divided by the sum of those chosen
    int32_t sigmoid;       // route: scores are logistic functions of the logits, not their softmax
    float number;          // eps of a norm, scale of attention, factor of scale, limit of cap
    float cap;             // of the scores of attention, 0 for none
    // y: second operand of gated (if apart), add and kv_write, residual of linear; out of gated_linear: quantized
    View x, y, out;
    View blocks;           // quantized rows: out of quantize, in of products
    // Matrix of embedding and linear, vector of norm, sinks of attention (or null), Matrix*[experts] of gate and up
    const void* weight;
    const float *bias, *cos, *sin;  // bias of experts: [experts][outputs]
    const void* down;      // Matrix*[experts], likewise its bias
    const float* down_bias;
    const float* expert_scales;  // route: [experts], of the weights of a row's experts, or null
    const float* preference;     // route: [experts], added to the scores for the choice, or null
};

// Storage that lasts from step to step, one per value that is live at the same time.
struct Buffer {
    int32_t columns, planes;  // planes 0: float32 rows; 1 or 2: quantized rows
    int32_t samples;
};

}  // namespace native

// Weights before they are tiles: where they lie, and in which blocks files (GGUF) keep them.
#pragma once

#include <cstdint>

namespace native {

// The types that are repacked here; Python quantizes the others anew. kernels/formats.py has the same table.
//    name, values of a block, its bytes, what it becomes
#define STORED_TYPES(F)        \
    F(Q4_0, 32, 18, q4_0)      \
    F(Q4_1, 32, 20, q4)        \
    F(Q5_0, 32, 22, q5_0)      \
    F(Q5_1, 32, 24, q5_1)      \
    F(Q8_0, 32, 34, q8)        \
    F(Q2_K, 256, 84, q2_k)     \
    F(Q3_K, 256, 110, q3_k)    \
    F(Q4_K, 256, 144, q4_k)    \
    F(Q5_K, 256, 176, q5_k)    \
    F(Q6_K, 256, 210, q6_k)    \
    F(IQ4_NL, 32, 18, iq4_nl)  \
    F(IQ4_XS, 256, 136, iq4_xs)\
    F(TQ1_0, 256, 54, tq2)     \
    F(TQ2_0, 256, 66, tq2)     \
    F(MXFP4, 32, 17, mxfp4)    \
    F(NVFP4, 64, 36, nvfp4)

#define NAME(name, ...) name,
enum class Stored : int32_t { none = -1, STORED_TYPES(NAME) };
#undef NAME

// Where a block of rows lies in the caller's memory: in canonical form (see kernels/weights.py), or as stored. Strides in
// bytes.
struct Source {
    int64_t format, stored, rows;
    const uint8_t* codes;   // or the values of a plain format, or blocks of the type `stored`
    int64_t codes_row, codes_group;
    const uint8_t* scales;
    int64_t scales_row, scales_group;
    const uint8_t* minima;  // of formats that have them
    int64_t minima_row, minima_group;
    int64_t mapped;  // the rows lie in a file mapped read-only: their pages can be given back and read again
    int64_t finite;  // plain values must be
    double factor;   // of packed values and of products with them
};

}  // namespace native

// Matrices in the blocks of a file (GGUF): a row of them as codes, scales and minima. kernels/stored.py does the same in
// numpy, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "formats.hpp"

namespace native {

// The types that are made into a packed format here; Python does the others. kernels/weights.py has the same table.
//    name, values of a block, its bytes, what it becomes
#define STORED_TYPES(F)      \
    F(Q4_0, 32, 18, q4)      \
    F(Q5_0, 32, 22, q8)      \
    F(Q5_1, 32, 24, q8)      \
    F(Q2_K, 256, 84, q8)     \
    F(Q3_K, 256, 110, q8)    \
    F(Q4_K, 256, 144, q4)    \
    F(Q5_K, 256, 176, q8)    \
    F(Q6_K, 256, 210, q8)    \
    F(IQ4_NL, 32, 18, q8)    \
    F(IQ4_XS, 256, 136, q8)  \
    F(TQ1_0, 256, 54, q8)    \
    F(TQ2_0, 256, 66, q8)    \
    F(MXFP4, 32, 17, q8)

#define NAME(name, ...) name,
enum class Stored : int32_t { none = -1, STORED_TYPES(NAME) };
#undef NAME

// One row in canonical form (kernels/weights.py), by groups.
struct CanonicalRow {
    std::vector<uint8_t> codes;
    std::vector<uint16_t> scales, minima;

    explicit CanonicalRow(int columns);
};

// False: the row can't be held so, as its values are not finite, too large for float16 scales, or too small for them.
bool convert_row(Stored type, const uint8_t* blocks, int columns, CanonicalRow& row);

}  // namespace native

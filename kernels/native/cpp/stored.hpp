// Matrices in the blocks of a file (GGUF): a row of them as a lane of tiles. kernels/stored.py reads the same from them, in
// numpy.
#pragma once

#include <cstdint>

#include "formats.hpp"

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

// A row of blocks as a lane of tiles that are zero before, of the format that the type becomes. False: it can't be held,
// as its scales are not finite.
bool fill_from_blocks(Stored type, const uint8_t* blocks, int columns, void* tiles, int lane);

}  // namespace native

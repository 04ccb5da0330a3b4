// Rows of activations, quantized for products of integers.
#pragma once

#include "formats.hpp"

namespace native {

// Bits of 1.5 * 2^23: with an integer below 2^22 added they are those of the sum as a float. So a sum of products that
// begins here needs no conversion.
constexpr int32_t kRaised = 0x4b400000;
constexpr float kRaise = 0x1.8p23f;

// A group of one activation row: value = scale * (256 planes[0] + planes[1]) with two planes, scale * planes[0] with
// one. sum = scale * (sum of the integers), offset = kRaised - 128 * (sum of the integers), for integers of weights
// that begin below 0; sums and offsets are those of the halves.
// In cache lines of its own: threads that write neighbouring rows do not meet, and no plane straddles two lines.
template <int Planes>
struct alignas(64) Activation {
    int8_t planes[Planes][kGroup];
    float scale, sum, sums[2];
    int32_t offset, offsets[2];
};

// Quantized rows stand in blocks of 16 (the last block holds what is left): [block][group][row of the block], so that
// a pass over a tile reads them in order.
static inline int block_height(int row, int rows) {
    int first = row / kBlockRows * kBlockRows;
    return rows - first < kBlockRows ? rows - first : kBlockRows;
}

static inline size_t activation_index(int row, int group, int rows, int groups) {
    int first = row / kBlockRows * kBlockRows;
    return (size_t)first * groups + (size_t)group * block_height(row, rows) + (row - first);
}

}  // namespace native

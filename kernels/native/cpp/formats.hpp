// Memory layouts shared by every part of the library. docs/numerics.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace native {

constexpr int kLanes = 16;     // lanes of a vector = outputs of a tile = positions of a key strip
constexpr int kGroup = 32;     // inputs that share a scale; also the keys of one softmax group
constexpr int kBlockRows = 16;  // quantized rows that stand together
constexpr int kPassRows = 8;    // of them, those that one pass of vector instructions over a tile serves

static constexpr int padded(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Floats from one row of a buffer to the next: an odd number of cache lines, or the rows that one tile writes to would
// crowd into a few sets of the cache.
static constexpr int row_stride(int columns) { return ((columns + kLanes - 1) / kLanes | 1) * kLanes; }

static constexpr int groups_of(int columns) { return (columns + kGroup - 1) / kGroup; }

enum class Format : int32_t { q4 = 0, q8 = 1, f32 = 2, f16 = 3, bf16 = 4 };

// One tile of a quantized matrix: 16 outputs x 32 inputs. Byte 64 i + 4 n + t of the codes belongs to output n;
// a q4 byte holds input 4 i + t in its low and 16 + 4 i + t in its high nibble, a q8 byte input 4 i + t as code + 128.
struct Q4Tile {
    static constexpr Format kFormat = Format::q4;
    uint16_t scales[kLanes], minima[kLanes];
    uint8_t codes[256];
};

struct Q8Tile {
    static constexpr Format kFormat = Format::q8;
    uint16_t scales[kLanes];
    uint8_t codes[512];
};

// A group of one activation row: value = scale * (256 planes[0] + planes[1]) with two planes, scale * planes[0] with
// one. sum = scale * (sum of the integers), offset = -128 * (sum of the integers), which undoes the + 128 of q8.
// In cache lines of its own: threads that write neighbouring rows do not meet, and no plane straddles two lines.
template <int Planes>
struct alignas(64) Activation {
    int8_t planes[Planes][kGroup];
    float scale, sum;
    int32_t offset;
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

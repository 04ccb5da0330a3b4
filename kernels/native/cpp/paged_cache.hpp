// Keys and values of all layers in blocks of positions.
#pragma once

#include <cstdint>
#include <string>

#include "kernels.hpp"
#include "memory.hpp"

namespace native {

constexpr int kMostHeadDim = 1024;

// Layout: [blocks][layers][keys, values][kv_heads][page]. All that belongs to a block lies together, so a copy of a
// block is one move and a few blocks touch little memory. A page of keys is [block_size / 16][head_dim][16], so that 16
// positions fill a vector; a page of values is [block_size][head_dim padded to 16]. The scales of a format that has any
// stand behind them, [block_size].
class PagedCache {
public:
    PagedCache(int layers, int blocks, int block_size, int kv_heads, int head_dim, CacheFormat format);

    int layers, blocks, block_size, kv_heads, head_dim;
    CacheFormat format;
    int value_stride;              // head_dim padded to 16
    ptrdiff_t value_bytes;
    ptrdiff_t page, block_stride;  // bytes

    void* keys(int layer, int head) const { return at(layer, 0, head); }      // of block 0
    void* values(int layer, int head) const { return at(layer, 1, head); }
    const void* keys_at(int layer, int head, int block) const {
        return (const char*)keys(layer, head) + block * block_stride;
    }

    // Asks for the memory that `write` will touch: a key goes to as many cache lines as half a head has columns, and
    // stores wait for them one by one.
    void fetch(int layer, int slot) const;

    // Stores k and v [kv_heads * head_dim] of one token, rounded to nearest even.
    void write(const Kernels& kernels, int layer, int slot, const float* k, const float* v);
    std::string copy_blocks(const int32_t* sources, const int32_t* targets, int count);  // what is wrong, or nothing
    size_t bytes() const { return arena_.bytes(); }

private:
    void* at(int layer, int side, int head) const;
    char* key_at(int layer, int head, int slot) const;    // its first value; the others stand 16 apart
    char* value_at(int layer, int head, int slot) const;

    Arena arena_;
    char* base_;
};

}  // namespace native

// Keys and values of all layers in blocks of positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "memory.hpp"

namespace native {

constexpr int kMostHeadDim = 1024;

// Layout: [blocks][layers][keys, values][kv_heads][page]. All that belongs to a block lies together, so a copy of a
// block is one move and a few blocks touch little memory. A page of keys is [block_size / 16][head_dim][16], so that 16
// positions fill a vector; a page of values is [block_size][head_dim padded to 16]. In a format with scales those of the
// keys stand behind the keys, [block_size], and then those of the values: they are read with the scores. Layers may
// differ in their heads.
class PagedCache {
public:
    struct Layer {
        int kv_heads, head_dim;
        int value_stride;                         // head_dim padded to 16
        ptrdiff_t scales;                         // bytes from a page of keys to its scales
        ptrdiff_t key_page, value_page, begin;    // bytes; begin: of the layer in a block
    };

    // kv_heads, head_dims: [count], of each layer.
    PagedCache(int count, int blocks, int block_size, const int32_t* kv_heads, const int32_t* head_dims,
               CacheFormat format);

    int blocks, block_size;
    CacheFormat format;
    ptrdiff_t value_bytes, block_stride;

    const Layer& layer(int index) const { return layers_[(size_t)index]; }
    void* keys(int layer, int head) const {  // of block 0
        const Layer& own = layers_[(size_t)layer];
        return base_ + own.begin + head * own.key_page;
    }
    void* values(int layer, int head) const {
        const Layer& own = layers_[(size_t)layer];
        return base_ + own.begin + own.kv_heads * own.key_page + head * own.value_page;
    }
    const void* keys_at(int layer, int head, int block) const {
        return (const char*)keys(layer, head) + block * block_stride;
    }

    // Asks for the memory that `write` will touch: a key goes to as many cache lines as half a head has columns, and
    // stores wait for them one by one.
    void fetch(int layer, int slot) const;

    // Stores k and v [kv_heads * head_dim] of one token, rounded to nearest even (after scaling, in a format with scales).
    void write(const Kernels& kernels, int layer, int slot, const float* k, const float* v);
    std::string copy_blocks(const int32_t* sources, const int32_t* targets, int count);  // what is wrong, or nothing
    size_t bytes() const { return arena_.bytes(); }

private:
    char* key_at(int layer, int head, int slot) const;    // its first value; the others stand 16 apart
    char* value_at(int layer, int head, int slot) const;
    float* scale_at(int layer, int head, int slot) const;  // of its key; that of its value stands block_size behind

    std::vector<Layer> layers_;
    Arena arena_;
    char* base_;
};

}  // namespace native

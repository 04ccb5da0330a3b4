#include "paged_cache.hpp"

#include <cstring>
#include <vector>

namespace native {

PagedCache::PagedCache(int layers, int blocks, int block_size, int kv_heads, int head_dim, bool half)
    : layers(layers),
      blocks(blocks),
      block_size(block_size),
      kv_heads(kv_heads),
      head_dim(head_dim),
      half(half),
      value_stride(padded(head_dim, kLanes)),
      page((ptrdiff_t)block_size * value_stride),
      block_stride(2 * page * layers * kv_heads) {
    base_ = (char*)arena_.allocate((size_t)block_stride * blocks * (half ? 2 : 4));
}

void* PagedCache::at(int layer, int side, int head) const {
    ptrdiff_t index = (((ptrdiff_t)layer * 2 + side) * kv_heads + head) * page;
    return base_ + index * (half ? 2 : 4);
}

void PagedCache::fetch(int layer, int slot) const {
    ptrdiff_t size = half ? 2 : 4, block = slot / block_size * block_stride, offset = slot % block_size;
    for (int head = 0; head < kv_heads; head++) {
        char* strip = (char*)keys(layer, head) + (block + offset / kLanes * kLanes * head_dim) * size;
        char* value = (char*)values(layer, head) + (block + offset * value_stride) * size;
        for (ptrdiff_t i = 0; i < head_dim * kLanes * size; i += 64) __builtin_prefetch(strip + i, 1);
        for (ptrdiff_t i = 0; i < head_dim * size; i += 64) __builtin_prefetch(value + i, 1);
    }
}

void PagedCache::write(const Kernels& kernels, int layer, int slot, const float* k, const float* v) {
    ptrdiff_t block = slot / block_size * block_stride, offset = slot % block_size;
    ptrdiff_t column = block + offset / kLanes * kLanes * head_dim + offset % kLanes;
    for (int head = 0; head < kv_heads; head++, k += head_dim, v += head_dim) {
        if (half) {
            uint16_t* key = (uint16_t*)keys(layer, head) + column;
            uint16_t* value = (uint16_t*)values(layer, head) + block + offset * value_stride;
            uint16_t rounded[kMostHeadDim];
            kernels.round_to_half(k, head_dim, rounded);
            kernels.round_to_half(v, head_dim, value);
            for (int i = 0; i < head_dim; i++) key[i * kLanes] = rounded[i];
        } else {
            float* key = (float*)keys(layer, head) + column;
            float* value = (float*)values(layer, head) + block + offset * value_stride;
            for (int i = 0; i < head_dim; i++) key[i * kLanes] = k[i];
            memcpy(value, v, (size_t)head_dim * sizeof(float));
        }
    }
}

std::string PagedCache::copy_blocks(const int32_t* sources, const int32_t* targets, int count) {
    for (int i = 0; i < count; i++)
        for (int block : {sources[i], targets[i]})
            if (block < 0 || block >= blocks)
                return "a block to copy is " + std::to_string(block) + ", outside 0 to " + std::to_string(blocks - 1);
    size_t bytes = (size_t)block_stride * (half ? 2 : 4);
    // All sources are read before the first target is written: a block may be both.
    std::vector<char> kept(bytes * (size_t)count);
    for (int i = 0; i < count; i++) memcpy(kept.data() + i * bytes, base_ + sources[i] * bytes, bytes);
    for (int i = 0; i < count; i++) memcpy(base_ + targets[i] * bytes, kept.data() + i * bytes, bytes);
    return "";
}

}  // namespace native

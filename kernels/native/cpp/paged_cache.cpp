#include "paged_cache.hpp"

#include <cstring>
#include <vector>

namespace native {

namespace {

struct Sizes {
    ptrdiff_t value, scale;  // bytes
};

Sizes sizes_of(CacheFormat format) {
#define SIZES(name, type, scale) \
    case CacheFormat::name: return {(ptrdiff_t)sizeof(type), scale};
    switch (format) { CACHE_FORMATS(SIZES) }
#undef SIZES
    __builtin_unreachable();
}

// Each returns the scale, 1 where there is none.
float round_to(const Kernels&, const float* x, int count, float* out) {
    memcpy(out, x, (size_t)count * sizeof *x);
    return 1.0f;
}

float round_to(const Kernels& kernels, const float* x, int count, uint16_t* out) {
    kernels.round_to_half(x, count, out);
    return 1.0f;
}

float round_to(const Kernels&, const float* x, int count, Bf16* out) {
    for (int i = 0; i < count; i++) out[i].bits = bf16_of_float(x[i]);
    return 1.0f;
}

float round_to(const Kernels& kernels, const float* x, int count, int8_t* out) {
    return kernels.round_to_int8(x, count, out);
}

// One head of a token; the values of its key stand 16 apart. scales: null, or where that of the key goes; that of the
// value goes `apart` behind.
template <class T>
void write_head(const Kernels& kernels, const float* k, const float* v, int count, T* key, T* value, float* scales,
                int apart) {
    T rounded[kMostHeadDim];
    float of_key = round_to(kernels, k, count, rounded), of_value = round_to(kernels, v, count, value);
    for (int i = 0; i < count; i++) key[i * kLanes] = rounded[i];
    if (!scales) return;
    scales[0] = of_key;
    scales[apart] = of_value;
}

}  // namespace

PagedCache::PagedCache(int count, int blocks, int block_size, const int32_t* kv_heads, const int32_t* head_dims,
                       CacheFormat format)
    : blocks(blocks), block_size(block_size), format(format), value_bytes(sizes_of(format).value), block_stride(0) {
    for (int i = 0; i < count; i++) {
        Layer own;
        own.kv_heads = kv_heads[i];
        own.head_dim = head_dims[i];
        own.value_stride = padded(own.head_dim, kLanes);
        own.scales = own.value_page = block_size * own.value_stride * value_bytes;
        own.key_page = own.scales + 2 * block_size * sizes_of(format).scale;
        own.begin = block_stride;
        block_stride += (own.key_page + own.value_page) * own.kv_heads;
        layers_.push_back(own);
    }
    base_ = (char*)arena_.allocate((size_t)block_stride * blocks);
}

char* PagedCache::key_at(int layer, int head, int slot) const {
    ptrdiff_t block = slot / block_size, offset = slot % block_size;
    ptrdiff_t index = offset / kLanes * kLanes * layers_[(size_t)layer].head_dim + offset % kLanes;
    return (char*)keys(layer, head) + block * block_stride + index * value_bytes;
}

char* PagedCache::value_at(int layer, int head, int slot) const {
    ptrdiff_t block = slot / block_size, offset = slot % block_size;
    return (char*)values(layer, head) + block * block_stride + offset * layers_[(size_t)layer].value_stride * value_bytes;
}

float* PagedCache::scale_at(int layer, int head, int slot) const {
    const Layer& own = layers_[(size_t)layer];
    if (own.key_page == own.scales) return nullptr;
    char* page = (char*)keys(layer, head) + slot / block_size * block_stride;
    return (float*)(page + own.scales) + slot % block_size;
}

void PagedCache::fetch(int layer, int slot) const {
    int head_dim = layers_[(size_t)layer].head_dim;
    for (int head = 0; head < layers_[(size_t)layer].kv_heads; head++) {
        char *strip = key_at(layer, head, slot / kLanes * kLanes), *value = value_at(layer, head, slot);
        for (ptrdiff_t i = 0; i < head_dim * kLanes * value_bytes; i += 64) __builtin_prefetch(strip + i, 1);
        for (ptrdiff_t i = 0; i < head_dim * value_bytes; i += 64) __builtin_prefetch(value + i, 1);
        if (float* scale = scale_at(layer, head, slot))
            for (int i = 0; i < 2; i++) __builtin_prefetch(scale + i * block_size, 1);
    }
}

void PagedCache::write(const Kernels& kernels, int layer, int slot, const float* k, const float* v) {
    int head_dim = layers_[(size_t)layer].head_dim;
    for (int head = 0; head < layers_[(size_t)layer].kv_heads; head++, k += head_dim, v += head_dim) {
        char *key = key_at(layer, head, slot), *value = value_at(layer, head, slot);
        float* scale = scale_at(layer, head, slot);
#define WRITE(name, type, ...) \
    case CacheFormat::name: write_head(kernels, k, v, head_dim, (type*)key, (type*)value, scale, block_size); break;
        switch (format) { CACHE_FORMATS(WRITE) }
#undef WRITE
    }
}

std::string PagedCache::copy_blocks(const int32_t* sources, const int32_t* targets, int count) {
    for (int i = 0; i < count; i++)
        for (int block : {sources[i], targets[i]})
            if (block < 0 || block >= blocks)
                return "a block to copy is " + std::to_string(block) + ", outside 0 to " + std::to_string(blocks - 1);
    size_t bytes = (size_t)block_stride;
    // All sources are read before the first target is written: a block may be both.
    std::vector<char> kept(bytes * (size_t)count);
    for (int i = 0; i < count; i++) memcpy(kept.data() + i * bytes, base_ + sources[i] * bytes, bytes);
    for (int i = 0; i < count; i++) memcpy(base_ + targets[i] * bytes, kept.data() + i * bytes, bytes);
    return "";
}

}  // namespace native

// The formats of keys and values: the table of kernels/cache_format.py, whose figures library.py compares with them.
#pragma once

#include <cstdint>

namespace native {

struct Bf16 {  // a type of its own, as float16 has the same size
    uint16_t bits;
};

//    name, type of a value, bytes of a scale (float32) that a token's values of a head share
#define CACHE_FORMATS(F)    \
    F(float32, float, 0)    \
    F(float16, uint16_t, 0) \
    F(bfloat16, Bf16, 0)    \
    F(int8, int8_t, 4)

#define NAME(name, ...) name,
enum class CacheFormat : int32_t { CACHE_FORMATS(NAME) };
#undef NAME

#define ONE(...) +1
constexpr int kCacheFormats = CACHE_FORMATS(ONE);
#undef ONE

}  // namespace native

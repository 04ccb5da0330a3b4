// Memory layouts shared by every part of the library, and single values of them. docs/numerics.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace native {

constexpr int kLanes = 16;     // lanes of a vector = outputs of a tile = positions of a key strip
constexpr int kGroup = 32;     // inputs that share a scale; also the keys that attention reads at a time
constexpr int kBlockRows = 16;  // quantized rows that stand together
constexpr int kPassRows = 8;    // of them, those that one pass of vector instructions over a tile serves

static constexpr int padded(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Floats from one row of a buffer to the next: an odd number of cache lines, or the rows that one tile writes to would
// crowd into a few sets of the cache.
static constexpr int row_stride(int columns) { return ((columns + kLanes - 1) / kLanes | 1) * kLanes; }

static constexpr int groups_of(int columns) { return (columns + kGroup - 1) / kGroup; }

// Single float16 and bfloat16 values, with the bits that hardware gives (round to nearest even).

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float float_of_bf16(uint16_t bits) { return float_of_bits((uint32_t)bits << 16); }

static inline float float_of_half(uint16_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;  // zero and subnormals: exact
    return float_of_bits(sign | bits_of_float(magnitude));
}

static inline uint16_t half_of_float(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // 65520 and more round to infinity
    if (magnitude < 0x38800000u) {                                     // below 2^-14: subnormal, in units of 2^-24
        float units = float_of_bits(magnitude) * 0x1p24f + 0x1p23f;    // the sum rounds to an integer
        return (uint16_t)(sign | (bits_of_float(units) & 0x7ffu));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

// The formats of weights: the table of kernels/weights.py, whose figures library.py compares with these. A new format is
// a line here, a case of `PackedTile::code`, and in dot_*.hpp an `unpack` where that is too slow.
//    name, bits of a code, columns that share a scale, whether they share a minimum, what the code 0 stands for
#define PACKED_FORMATS(F)  \
    F(q4, 4, 32, true, 0)  \
    F(q8, 8, 32, false, -128)
//    name, type of a value
#define PLAIN_FORMATS(F) \
    F(f32, float)        \
    F(f16, uint16_t)     \
    F(bf16, uint16_t)

#define NAME(name, ...) name,
enum class Format : int32_t { PACKED_FORMATS(NAME) PLAIN_FORMATS(NAME) };
#undef NAME

#define ONE(...) +1
constexpr int kPackedFormats = PACKED_FORMATS(ONE), kFormats = kPackedFormats PLAIN_FORMATS(ONE);
#undef ONE

// One tile of a packed matrix, 16 outputs x 32 inputs: value = (code + kLow) * scale + minimum. In what order the codes
// stand is the same for all: number 64 i + 4 n + t is that of output n and input 4 i + t.
template <Format F, int Bits, int Group, bool Minima, int Low>
struct PackedTile {
    static_assert(Group == kGroup, "a tile has one scale an output");
    static constexpr Format kFormat = F;
    static constexpr bool kPacked = true, kMinima = Minima;
    static constexpr int kBits = Bits, kLow = Low;
    static constexpr int kColumns = kGroup;              // inputs of a tile
    static constexpr int kRowBytes = Bits * kGroup / 8;  // of one output's codes

    uint16_t halves[(Minima ? 2 : 1) * kLanes];  // scales, then minima
    uint8_t codes[kRowBytes * kLanes];           // 4 bits: number i in a low, number i + 256 in a high nibble

    const uint16_t* scales() const { return halves; }
    const uint16_t* minima() const { return halves + kLanes; }
    int code(int number) const {
        if constexpr (Bits == 4) return number < 256 ? codes[number] & 15 : codes[number - 256] >> 4;
        else return codes[number];
    }
};

// Sixteen outputs of one input of a plain matrix.
template <Format F, class T>
struct PlainTile {
    static constexpr Format kFormat = F;
    static constexpr bool kPacked = false;
    static constexpr int kColumns = 1, kRowBytes = sizeof(T);
    using Value = T;

    T values[kLanes];
};

template <Format F>
struct TileOf;
#define PACKED(name, ...) \
    template <>           \
    struct TileOf<Format::name> : PackedTile<Format::name, __VA_ARGS__> {};
#define PLAIN(name, type) \
    template <>           \
    struct TileOf<Format::name> : PlainTile<Format::name, type> {};
PACKED_FORMATS(PACKED)
PLAIN_FORMATS(PLAIN)
#undef PACKED
#undef PLAIN

// call(a null pointer to a tile of the format)
template <class Call>
static inline auto with_tile(Format format, Call call) {
#define CASE(name, ...) \
    case Format::name: return call((TileOf<Format::name>*)nullptr);
    switch (format) { PACKED_FORMATS(CASE) PLAIN_FORMATS(CASE) }
#undef CASE
    __builtin_unreachable();
}

// The formats of keys and values: the table of kernels/interface.py, compared likewise.
//    name, type of a value, bytes of a scale (float32) that a token's values of a head share
#define CACHE_FORMATS(F)    \
    F(float32, float, 0)    \
    F(float16, uint16_t, 0) \
    F(int8, int8_t, 4)

#define NAME(name, ...) name,
enum class CacheFormat : int32_t { CACHE_FORMATS(NAME) };
#undef NAME

#define ONE(...) +1
constexpr int kCacheFormats = CACHE_FORMATS(ONE);
#undef ONE

// A group of one activation row: value = scale * (256 planes[0] + planes[1]) with two planes, scale * planes[0] with
// one. sum = scale * (sum of the integers), offset = -128 * (sum of the integers), for codes stored with 128 added.
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

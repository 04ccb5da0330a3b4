// Memory layouts shared by every part of the library, and single values of them. docs/numerics.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace native {

constexpr int kLanes = 16;     // lanes of a vector = outputs of a tile = positions of a key strip
constexpr int kGroup = 32;     // inputs that share a scale; also the keys that attention reads at a time
constexpr int kBlockRows = 16;  // quantized rows that stand together

static constexpr int divided(int n, int unit) { return (n + unit - 1) / unit; }  // rounded up

static constexpr int padded(int n, int unit) { return divided(n, unit) * unit; }

// Floats from one row of a buffer to the next: an odd number of cache lines, or the rows that one tile writes to would
// crowd into a few sets of the cache.
static constexpr int row_stride(int columns) { return (divided(columns, kLanes) | 1) * kLanes; }

static constexpr int groups_of(int columns) { return divided(columns, kGroup); }

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

static inline uint16_t bf16_of_float(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

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

// The scales of microscaling formats, half of what OCP MX says, as tables hold doubled values. 2^(bits - 128):
static inline float float_of_e8m0(uint8_t bits) {
    return float_of_bits(bits ? (uint32_t)bits << 23 : 0x400000u) * 0.5f;
}
// Four bits of exponent, three of fraction, no sign.
static inline float float_of_ue4m3(uint8_t bits) { return float_of_bits((uint32_t)bits << 20) * 0x1p119f; }

// The formats of weights: these tables are those of kernels/formats.py, whose figures library.py compares with them. A
// new format is a line here and, if its codes or scales are of a new kind, an `unpack` in dot_*.hpp or `TileScales`.

// How scales (and minima, likewise) are kept.
//    name, bits of one, what 0 stands for, inputs of a super-block: of these they are integers beside one float16
#define SCALE_KINDS(F)     \
    F(f16, 16, 0, 0)       \
    F(f32, 32, 0, 0)       \
    F(e8m0, 8, 0, 0)       \
    F(ue4m3, 8, 0, 0)      \
    F(k4, 4, 0, 256)       \
    F(k6, 6, 0, 256)       \
    F(s6, 6, -32, 256)     \
    F(s8, 8, -128, 256)
//    name, what the codes 0 to 15 stand for
#define TABLES(F)                                                                        \
    F(iq4, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)     \
    F(e2m1, 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)                     \
    F(nf4, -127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127)
//    name, bits of a code, inputs that share a scale, how scales are kept, whether there are minima, what the unsigned
//    integer 0 of products stands for, table of what codes stand for (none: a code is that integer)
#define PACKED_FORMATS(F)                       \
    F(q4, 4, 32, f16, true, 0, none)            \
    F(q8, 8, 32, f16, false, -128, none)        \
    F(q4_0, 4, 32, f16, false, -8, none)        \
    F(q5_0, 5, 32, f16, false, -16, none)       \
    F(q5_1, 5, 32, f16, true, 0, none)          \
    F(q4_k, 4, 32, k6, true, 0, none)           \
    F(q5_k, 5, 32, k6, true, 0, none)           \
    F(q6_k, 6, 16, s8, false, -32, none)        \
    F(q3_k, 3, 16, s6, false, -4, none)         \
    F(q2_k, 2, 16, k4, true, 0, none)           \
    F(tq2, 2, 256, f16, false, -1, none)        \
    F(iq4_nl, 4, 32, f16, false, -128, iq4)     \
    F(iq4_xs, 4, 32, s6, false, -128, iq4)      \
    F(mxfp4, 4, 32, e8m0, false, -16, e2m1)     \
    F(nvfp4, 4, 16, ue4m3, false, -16, e2m1)    \
    F(nf4, 4, 64, f32, false, -128, nf4)        \
    F(q8_64, 8, 64, f32, false, -128, none)
//    name, type of a value
#define PLAIN_FORMATS(F) \
    F(f32, float)        \
    F(f16, uint16_t)     \
    F(bf16, uint16_t)

#define NAME(name, ...) name,
enum class Scales : int32_t { SCALE_KINDS(NAME) };
enum class Table : int32_t { none = -1, TABLES(NAME) };
enum class Format : int32_t { PACKED_FORMATS(NAME) PLAIN_FORMATS(NAME) };
#undef NAME

#define ONE(...) +1
constexpr int kPackedFormats = PACKED_FORMATS(ONE), kFormats = kPackedFormats PLAIN_FORMATS(ONE);
#undef ONE

struct ScaleKind {
    int bits, low, block;
};
#define KIND(name, ...) {__VA_ARGS__},
constexpr ScaleKind kScaleKinds[] = {SCALE_KINDS(KIND)};
#undef KIND

#define VALUES(name, ...) {__VA_ARGS__},
constexpr int8_t kTables[][16] = {TABLES(VALUES)};
#undef VALUES

constexpr int largest_of(const int8_t* table) {
    int most = table[0];
    for (int i = 1; i < 16; i++) most = most < table[i] ? table[i] : most;
    return most;
}

// A tile of a packed matrix: 16 outputs by the inputs of a super-block, of a scale or of a group, whichever is most.
//    value = (integer + kLow) * scale + minimum; integer = code, or table[code] - kLow
// The codes of each group of 32 inputs stand together, number 64 i + 4 n + t being that of output n and input 4 i + t.
// Codes of 8, 4 or 2 bits lie in one plane. Others have their upper bits, one or two, in a plane behind that of 4 or 2
// bits. A plane of b bits has 64 b bytes: number i is in byte i % 64 b, above the fields of the numbers before it.
template <Format F, int Bits, int Run, Scales Kind, bool Minima, int Low, Table T>
struct PackedTile {
    static constexpr ScaleKind kKind = kScaleKinds[(int)Kind];
    static constexpr Format kFormat = F;
    static constexpr Scales kScales = Kind;
    static constexpr bool kPacked = true, kMinima = Minima, kTable = T != Table::none;
    static constexpr int kBits = Bits, kLow = Low, kRun = Run;
    static constexpr int kColumns = kKind.block ? kKind.block : Run > kGroup ? Run : kGroup;  // inputs of a tile
    static constexpr int kGroups = kColumns / kGroup, kRuns = kColumns / Run;
    static constexpr int kLowBits = Bits >= 8 ? 8 : Bits >= 4 ? 4 : 2, kHighBits = Bits - kLowBits;
    static constexpr int kRowBytes = Bits * kGroup / 8;  // of one output's codes of a group
    static constexpr int kNumbers = Minima ? 2 : 1;      // scales, then minima
    // Whether a scale times 1.5 * 2^23 is exact in float32: not where it may have 24 bits, or be beyond 2^104.
    static constexpr bool kShortScales = Kind != Scales::f32 && Kind != Scales::e8m0;
    static constexpr bool kFused = F != Format::q4 && F != Format::q8;  // whether products are added without rounding
    static constexpr int kScaleBytes = kKind.bits * kRuns * kLanes / 8;
    static constexpr int kHalfBytes = kKind.block ? 2 * kLanes : 0;
    static_assert(Run == kGroup / 2 || Run % kGroup == 0, "products go by groups or their halves");
    static_assert(Low == 0 || (-128 % Low == 0 && Low < 0), "`offset` of an activation is -128 times a sum");

    uint8_t numbers[kNumbers * (kHalfBytes + kScaleBytes)];  // float16 of the super-block first
    uint8_t codes[kGroups][kRowBytes * kLanes];

    static const int8_t* table() { return kTables[(int)T]; }
    static constexpr int most() {  // the largest integer
        if constexpr (kTable) return largest_of(kTables[(int)T]) - Low;
        else return (1 << Bits) - 1;
    }

    // which: 0 for scales, 1 for minima.
    const uint8_t* scales(int which) const { return numbers + kNumbers * kHalfBytes + which * kScaleBytes; }
    const uint16_t* halves(int which) const { return (const uint16_t*)(numbers + which * kHalfBytes); }

    int integer(int group, int number) const {
        int code = field<kLowBits>(codes[group], number);
        if constexpr (kHighBits > 0) code |= field<kHighBits>(codes[group] + 64 * kLowBits, number) << kLowBits;
        if constexpr (kTable) return table()[code] - Low;
        else return code;
    }

    // Numbers of six bits lie in a plane of the four lower ones of two runs, then one of the two upper ones of four.
    float scale(int which, int run, int lane) const {
        const uint8_t* p = scales(which);
        int at = run * kLanes + lane;
        if constexpr (Kind == Scales::f16) {
            return float_of_half(number_at<uint16_t>(p, at));
        } else if constexpr (Kind == Scales::f32) {
            return number_at<float>(p, at);
        } else if constexpr (Kind == Scales::e8m0) {
            return float_of_e8m0(p[at]);
        } else if constexpr (Kind == Scales::ue4m3) {
            return float_of_ue4m3(p[at]);
        } else {
            int number = p[at];
            if constexpr (kKind.bits < 8) number = p[run / 2 * kLanes + lane] >> run % 2 * 4 & 15;
            if constexpr (kKind.bits == 6)
                number |= (p[kRuns * kLanes / 2 + run / 4 * kLanes + lane] >> run % 4 * 2 & 3) << 4;
            return float_of_half(number_at<uint16_t>(numbers + which * kHalfBytes, lane)) * (float)(number + kKind.low);
        }
    }

private:
    template <class Number>
    static Number number_at(const uint8_t* p, int index) {
        Number number;
        memcpy(&number, p + (size_t)index * sizeof number, sizeof number);
        return number;
    }
    template <int B>
    static int field(const uint8_t* plane, int number) {
        return plane[number % (64 * B)] >> number / (64 * B) * B & ((1 << B) - 1);
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
#define PACKED(name, bits, run, scales, minima, low, table) \
    template <>                                             \
    struct TileOf<Format::name> : PackedTile<Format::name, bits, run, Scales::scales, minima, low, Table::table> {};
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

}  // namespace native

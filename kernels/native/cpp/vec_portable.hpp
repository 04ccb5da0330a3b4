// Sixteen float or int32 lanes in plain C++: any machine, the same bits.
#pragma once

constexpr int kSums = 2;

#define INLINE static inline

struct Vec {
    float v[kLanes];
};
struct Int {
    int32_t v[kLanes];
};
struct Mask {
    bool v[kLanes];
};

// Applies an expression of lane i to every lane of a new value.
#define EACH_LANE(type, expression)                        \
    type r;                                                \
    for (int i = 0; i < kLanes; i++) r.v[i] = (expression); \
    return r

constexpr uint64_t kSmallestNormal = (uint64_t)(1023 - 126) << 53;  // 2^-126 as float64, without sign

INLINE Vec splat(float x) { EACH_LANE(Vec, x); }
INLINE Vec load(const float* p) { EACH_LANE(Vec, p[i]); }
INLINE Vec load_first(const float* p, int n) { EACH_LANE(Vec, i < n ? p[i] : 0.0f); }
INLINE void store(float* p, Vec a) { memcpy(p, a.v, sizeof a.v); }
INLINE void store_first(float* p, Vec a, int n) { memcpy(p, a.v, (size_t)n * sizeof(float)); }
INLINE Vec operator+(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] + b.v[i]); }
INLINE Vec operator-(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] - b.v[i]); }
INLINE Vec operator*(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] * b.v[i]); }
INLINE Vec operator/(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] / b.v[i]); }
#if defined(__FP_FAST_FMAF)
INLINE Vec fma(Vec a, Vec b, Vec c) { EACH_LANE(Vec, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
#else
// Without the instruction a library call a lane would be slow. The product is exact in float64, so rounding the float64
// sum to float32 differs from rounding the exact sum only if the former lies between two float32 numbers: then its 29
// lowest bits are 1 followed by zeros. Subnormal results have fewer bits. Both are rare, and left to the library.
INLINE Vec fma(Vec a, Vec b, Vec c) {
    Vec r;
    uint64_t doubtful = 0;
    for (int i = 0; i < kLanes; i++) {
        double sum = (double)a.v[i] * (double)b.v[i] + (double)c.v[i];
        uint64_t bits;
        memcpy(&bits, &sum, 8);
        uint64_t magnitude = bits << 1;
        doubtful |= (uint64_t)((bits & 0x1fffffff) == 0x10000000) | (uint64_t)(magnitude - 1 < kSmallestNormal - 1);
        r.v[i] = (float)sum;
    }
    if (doubtful)
        for (int i = 0; i < kLanes; i++) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return r;
}
#endif
INLINE Vec greater(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
INLINE Vec lesser(Vec a, Vec b) { EACH_LANE(Vec, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
INLINE Mask operator>(Vec a, Vec b) { EACH_LANE(Mask, a.v[i] > b.v[i]); }
INLINE Mask unordered(Vec a) { EACH_LANE(Mask, a.v[i] != a.v[i]); }
INLINE Vec select(Mask m, Vec a, Vec b) { EACH_LANE(Vec, m.v[i] ? a.v[i] : b.v[i]); }
INLINE unsigned bits_of(Mask m) {
    unsigned bits = 0;
    for (int i = 0; i < kLanes; i++) bits |= (unsigned)m.v[i] << i;
    return bits;
}

INLINE Vec load_f16(const uint16_t* p) { EACH_LANE(Vec, float_of_half(p[i])); }
INLINE Vec load_bf16(const uint16_t* p) { EACH_LANE(Vec, float_of_bf16(p[i])); }
INLINE Vec load_int8(const int8_t* p) { EACH_LANE(Vec, (float)p[i]); }
INLINE void store_f16(uint16_t* p, Vec a) {
    for (int i = 0; i < kLanes; i++) p[i] = half_of_float(a.v[i]);
}

INLINE Vec load_doubled(const float* p) { EACH_LANE(Vec, p[i / 2]); }
INLINE Vec swap_pairs(Vec a) { EACH_LANE(Vec, a.v[i ^ 1]); }
INLINE Vec negate_even(Vec a) { EACH_LANE(Vec, i % 2 ? a.v[i] : -a.v[i]); }

// Rounds to nearest even for |x| < 2^22: the sum with 1.5 * 2^23 has no room for a fraction.
INLINE int32_t round_lane(float x) { return (int32_t)bits_of_float(x + 0x1.8p23f) - 0x4b400000; }

INLINE Int splat_int(int32_t x) { EACH_LANE(Int, x); }
INLINE Int load_bytes(const uint8_t* p) { EACH_LANE(Int, p[i]); }
INLINE Int load_int(const int32_t* p) { EACH_LANE(Int, p[i]); }
INLINE void store_int(int32_t* p, Int a) { memcpy(p, a.v, sizeof a.v); }
INLINE Int round_to_int(Vec a) { EACH_LANE(Int, round_lane(a.v[i])); }
INLINE Int truncate_to_int(Vec a) { EACH_LANE(Int, (int32_t)a.v[i]); }
INLINE Vec to_float(Int a) { EACH_LANE(Vec, (float)a.v[i]); }
INLINE Int as_int(Vec a) { EACH_LANE(Int, (int32_t)bits_of_float(a.v[i])); }
INLINE Vec as_float(Int a) { EACH_LANE(Vec, float_of_bits((uint32_t)a.v[i])); }
INLINE Int operator+(Int a, Int b) { EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i])); }
INLINE Int operator-(Int a, Int b) { EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i])); }
INLINE Int operator*(Int a, Int b) { EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] * (uint32_t)b.v[i])); }
INLINE Int operator&(Int a, Int b) { EACH_LANE(Int, a.v[i] & b.v[i]); }
INLINE Int operator|(Int a, Int b) { EACH_LANE(Int, a.v[i] | b.v[i]); }
INLINE Int operator^(Int a, Int b) { EACH_LANE(Int, a.v[i] ^ b.v[i]); }
template <int N>
INLINE Int shift_left(Int a) {
    EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] << N));
}
template <int N>
INLINE Int shift_right(Int a) {
    EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] >> N));
}
template <int N>
INLINE Int shift_right_signed(Int a) {
    EACH_LANE(Int, a.v[i] >> N);
}
INLINE Int operator<<(Int a, int n) { EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] << n)); }
INLINE Int operator>>(Int a, int n) { EACH_LANE(Int, (int32_t)((uint32_t)a.v[i] >> n)); }
INLINE Int greater(Int a, Int b) { EACH_LANE(Int, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
INLINE void store_int8(int8_t* p, Int a) {
    for (int i = 0; i < kLanes; i++) p[i] = (int8_t)a.v[i];
}
INLINE void store_low_bytes(uint8_t* p, Int a) {
    for (int i = 0; i < kLanes; i++) p[i] = (uint8_t)a.v[i];
}
INLINE void store_low_halves(uint16_t* p, Int a) {
    for (int i = 0; i < kLanes; i++) p[i] = (uint16_t)a.v[i];
}
INLINE void load_rows(const uint8_t* const* rows, ptrdiff_t at, Int* words) {
    for (int lane = 0; lane < kLanes; lane++)
        for (int i = 0; i < 4; i++) memcpy(&words[i].v[lane], rows[lane] + at + 4 * i, 4);
}

INLINE float sum(Vec a) {
    for (int half = kLanes / 2; half; half /= 2)
        for (int i = 0; i < half; i++) a.v[i] = a.v[i] + a.v[i + half];
    return a.v[0];
}
INLINE int32_t sum(Int a) {
    int32_t total = 0;
    for (int i = 0; i < kLanes; i++) total += a.v[i];
    return total;
}
INLINE int32_t largest(Int a) {
    int32_t best = a.v[0];
    for (int i = 1; i < kLanes; i++) best = a.v[i] > best ? a.v[i] : best;
    return best;
}
INLINE float largest(Vec a) {
    float best = a.v[0];
    for (int i = 1; i < kLanes; i++) best = a.v[i] > best ? a.v[i] : best;
    return best;
}

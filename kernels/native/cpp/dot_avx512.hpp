// Products of one group of a weight tile with some rows, for AVX-512 VNNI.
#pragma once

constexpr bool kUnrolled = true;  // whether loops over rows are
constexpr int kParts = 1;
constexpr int kTogether = 8;  // rows whose products are made side by side
using Part = Vec;
INLINE Part& part_of(Vec& acc, int) { return acc; }
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part load_part(const uint16_t* halves, int) { return load_f16(halves); }
INLINE Part load_part(const float* p, int) { return load(p); }
INLINE Part fma_part(Part a, Part b, Part c) { return fma(a, b, c); }

INLINE __m512i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

// Integers of a group, unsigned: i holds inputs 4 i to 4 i + 3 of 16 outputs.
struct Codes {
    __m512i v[8];
};

typedef uint16_t Shorts __attribute__((vector_size(64)));

// Vector i of a plane of B bits, as fields that begin at bit `At` of each byte.
template <int B, int At>
INLINE __m512i fields(const uint8_t* plane, int i) {
    __m512i v = _mm512_loadu_si512(plane + 64 * (i % B));
    if constexpr (B == 8) return v;
    int shift = i / B * B - At;  // to the right
    if (shift > 0) v = (__m512i)((Shorts)v >> shift);
    if (shift < 0) v = (__m512i)((Shorts)v << -shift);
    return _mm512_and_si512(v, _mm512_set1_epi8(((1 << B) - 1) << At));
}

template <class Tile>
INLINE Codes unpack(const Tile& w, int group, int) {
    const uint8_t* codes = w.codes[group];
    Codes c;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        c.v[i] = fields<Tile::kLowBits, 0>(codes, i);
        if constexpr (Tile::kHighBits > 0)
            c.v[i] = _mm512_or_si512(c.v[i], fields<Tile::kHighBits, Tile::kLowBits>(codes + 64 * Tile::kLowBits, i));
    }
    if constexpr (Tile::kTable) {
        const __m512i entries = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)Tile::table()));
        const __m512i integers = _mm512_sub_epi8(entries, _mm512_set1_epi8((char)Tile::kLow));
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) c.v[i] = _mm512_shuffle_epi8(integers, c.v[i]);
    }
    return c;
}

// total += codes * four activations. GCC knows no form of the instruction that repeats four bytes by itself.
INLINE void add_products(__m512i& total, __m512i codes, const int8_t* four) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(total) : "v"(codes), "m"(*(const int32_t*)four));
}

// total[j] += the products of the vectors First to First + Count with row j. The steps of a sum wait for each other, and what
// waits fills the processor's queue: rows go side by side, and a row alone in two sums.
template <int First, int Count, int Planes>
INLINE void dot_plane(__m512i* total, const Codes& codes, const Activation<Planes>* x, int plane, int rows) {
    __m512i second = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = First; i < First + Count; i++)
#pragma GCC unroll 8
        for (int j = 0; j < rows; j++)
            add_products(rows == 1 && Count == 8 && i % 2 ? second : total[j], codes.v[i], x[j].planes[plane] + 4 * i);
    if (rows == 1 && Count == 8) total[0] = _mm512_add_epi32(total[0], second);
}

template <class Tile, int First, int Count, int Planes>
INLINE void dots(const Codes& codes, const Activation<Planes>* x, int rows, Part* out) {
    __m512i total[kTogether], high[kTogether];
#pragma GCC unroll 8
    for (int j = 0; j < rows; j++) {
        high[j] = total[j] = _mm512_setzero_si512();
        if constexpr (Tile::kLow != 0) {  // kLow * (sum of the integers): an offset is -128 times that sum
            total[j] = _mm512_set1_epi32(Count == 8 ? x[j].offset : x[j].offsets[First / 4]);
            if constexpr (Tile::kLow != -128) total[j] = _mm512_srai_epi32(total[j], __builtin_ctz(-128 / Tile::kLow));
        }
    }
    if (Planes == 2) dot_plane<First, Count>(high, codes, x, 0, rows);
    dot_plane<First, Count>(total, codes, x, Planes - 1, rows);
#pragma GCC unroll 8
    for (int j = 0; j < rows; j++) {
        if (Planes == 2) total[j] = _mm512_add_epi32(_mm512_slli_epi32(high[j], 8), total[j]);
        out[j] = to_float(Int{total[j]});
    }
}

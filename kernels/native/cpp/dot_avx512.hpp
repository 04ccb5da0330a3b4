// Products of one group of a weight tile with some rows, for AVX-512 VNNI.
#pragma once

constexpr int kParts = 1;     // of a tile's outputs, one after the other
constexpr int kTogether = 4;  // rows whose products are made side by side
constexpr int kFew = 3;       // rows up to which sums stay in registers
constexpr bool kCanRaise = true;
using Part = Vec;
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part load_part(const uint16_t* halves, int) { return load_f16(halves); }
INLINE Part load_part(const float* p, int) { return load(p); }
INLINE Part load_part(const uint8_t* bytes, int) { return to_float(load_bytes(bytes)); }
INLINE void store_part(float* p, Part a) { store(p, a); }
INLINE Part fma_part(Part a, Part b, Part c) { return fma(a, b, c); }

// Integers of a group, less kLeast: i holds inputs 4 i to 4 i + 3 of 16 outputs.
struct Codes {
    __m512i v[8];
};

typedef uint16_t Shorts __attribute__((vector_size(64)));

// What unsigned integers of products begin at.
template <class Tile>
constexpr int kLeast = Tile::kLow == 0 ? 0 : -128;

// Vector i of a plane of B bits, as fields that begin at bit `At` of each byte, or'ed to `below`.
template <int B, int At>
INLINE __m512i fields(const uint8_t* plane, int i, __m512i below = _mm512_setzero_si512()) {
    __m512i v = _mm512_loadu_si512(plane + 64 * (i % B));
    if constexpr (B == 8) return v;
    int shift = i / B * B - At;  // to the right
    if (shift > 0) v = (__m512i)((Shorts)v >> shift);
    if (B > 1 && shift < 0) v = (__m512i)((Shorts)v << -shift);
    for (int n = shift; B == 1 && n < 0; n++) v = _mm512_add_epi8(v, v);  // more units add than shift
    const __m512i mask = _mm512_set1_epi8((char)(((1 << B) - 1) << At));
    return At == 0 ? _mm512_and_si512(v, mask) : _mm512_ternarylogic_epi32(v, mask, below, 0xea);
}

template <class Tile>
INLINE Codes unpack(const Tile& w, int group, int) {
    constexpr int above = Tile::kLow - kLeast<Tile>;
    const uint8_t* codes = w.codes[group];
    Codes c;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        c.v[i] = fields<Tile::kLowBits, 0>(codes, i);
        if constexpr (Tile::kHighBits > 0)
            c.v[i] = fields<Tile::kHighBits, Tile::kLowBits>(codes + 64 * Tile::kLowBits, i, c.v[i]);
    }
    if constexpr (Tile::kTable) {
        const __m512i entries = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)Tile::table()));
        const __m512i integers = _mm512_sub_epi8(entries, _mm512_set1_epi8((char)kLeast<Tile>));
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) c.v[i] = _mm512_shuffle_epi8(integers, c.v[i]);
    } else if constexpr (above != 0) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) c.v[i] = _mm512_add_epi8(c.v[i], _mm512_set1_epi8(above));
    }
    return c;
}

// total += codes * four activations. GCC knows no form of the instruction that repeats four bytes by itself.
INLINE void add_products(__m512i& total, __m512i codes, const int8_t* four) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(total) : "v"(codes), "m"(*(const int32_t*)four));
}

// total[j] += the products of the vectors First to First + Count with row j. The steps of a sum wait for each other, and
// what waits fills the processor's queue: rows go side by side, and a row alone in two sums.
template <int First, int Count, int Rows, int Planes>
INLINE void dot_plane(__m512i* total, const Codes& codes, const Activation<Planes>* x, int plane) {
    constexpr int sums = Rows == 1 && Count == 8 ? 2 : Rows;
    __m512i sum[sums];
#pragma GCC unroll 8
    for (int j = 0; j < sums; j++) sum[j] = j < Rows ? total[j] : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = First; i < First + Count; i++)
#pragma GCC unroll 8
        for (int j = 0; j < Rows; j++)
            add_products(sum[sums > Rows ? i % 2 : j], codes.v[i], x[j].planes[plane] + 4 * i);
#pragma GCC unroll 8
    for (int j = 0; j < Rows; j++) total[j] = sum[j];
    if constexpr (sums > Rows) total[0] = _mm512_add_epi32(total[0], sum[1]);
}

template <class Tile, int First, int Count, int Planes, int Rows>
INLINE void dots(const Codes& codes, const Activation<Planes>* x, Part* out) {
    __m512i total[Rows], high[Rows];
#pragma GCC unroll 8
    for (int j = 0; j < Rows; j++) {
        high[j] = _mm512_set1_epi32(-(kRaised >> 8));  // takes kRaised away at the end
        total[j] = _mm512_set1_epi32(kRaised);
        if constexpr (kLeast<Tile> != 0) total[j] = _mm512_set1_epi32(Count == 8 ? x[j].offset : x[j].offsets[First / 4]);
    }
    if constexpr (Planes == 2) dot_plane<First, Count, Rows>(high, codes, x, 0);
    dot_plane<First, Count, Rows>(total, codes, x, Planes - 1);
#pragma GCC unroll 8
    for (int j = 0; j < Rows; j++) {
        if constexpr (Planes == 2) out[j] = to_float(Int{_mm512_add_epi32(_mm512_slli_epi32(high[j], 8), total[j])});
        else out[j] = as_float(Int{total[j]});
    }
}

// Products of one group of a weight tile with a row, for AVX-512 VNNI.
#pragma once

constexpr bool kUnrolled = true;  // whether loops over rows are
constexpr int kParts = 1;
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

// Of the vectors First to First + Count. One chain: other rows and groups fill the time until its next step.
template <int First, int Count>
INLINE __m512i dot_plane(__m512i total, const Codes& codes, const int8_t* x) {
#pragma GCC unroll 8
    for (int i = First; i < First + Count; i++)
        total = _mm512_dpbusd_epi32(total, codes.v[i], broadcast4(x + 4 * i));
    return total;
}

template <class Tile, int First, int Count, int Planes>
INLINE Part dot(const Codes& codes, const Activation<Planes>& x) {
    // kLow * (sum of the integers): an offset is -128 times that sum.
    __m512i start = _mm512_setzero_si512();
    if constexpr (Tile::kLow != 0) {
        start = _mm512_set1_epi32(Count == 8 ? x.offset : x.offsets[First / 4]);
        if constexpr (Tile::kLow != -128) start = _mm512_srai_epi32(start, __builtin_ctz(-128 / Tile::kLow));
    }
    if (Planes == 1) return to_float(Int{dot_plane<First, Count>(start, codes, x.planes[0])});
    __m512i high = dot_plane<First, Count>(_mm512_setzero_si512(), codes, x.planes[0]);
    __m512i low = dot_plane<First, Count>(start, codes, x.planes[Planes - 1]);
    return to_float(Int{_mm512_add_epi32(_mm512_slli_epi32(high, 8), low)});
}

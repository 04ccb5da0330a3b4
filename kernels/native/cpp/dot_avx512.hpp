// Products of one weight tile with a row, for AVX-512 VNNI.
#pragma once

constexpr int kParts = 1;
using Part = Vec;
INLINE Part& part_of(Vec& acc, int) { return acc; }
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part load_part(const uint16_t* halves, int) { return load_f16(halves); }

INLINE __m512i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

// Codes of a tile, unsigned as they are stored: i holds inputs 4 i to 4 i + 3 of 16 outputs.
struct Codes {
    __m512i v[8];
};

template <class Tile>
INLINE Codes unpack(const Tile& w, int) {
    Codes c;
    if constexpr (Tile::kBits == 4) {
        const __m512i nibble = _mm512_set1_epi8(15);
        for (int i = 0; i < 4; i++) {
            __m512i pair = _mm512_loadu_si512(w.codes + 64 * i);
            c.v[i] = _mm512_and_si512(pair, nibble);
            c.v[i + 4] = _mm512_and_si512(_mm512_srli_epi16(pair, 4), nibble);
        }
    } else {
        static_assert(Tile::kBits == 8, "how are these unpacked?");
        for (int i = 0; i < 8; i++) c.v[i] = _mm512_loadu_si512(w.codes + 64 * i);
    }
    return c;
}

INLINE __m512i dot_plane(__m512i start, const Codes& codes, const int8_t* x) {
    __m512i even = start, odd = _mm512_setzero_si512();
    for (int i = 0; i < 8; i += 2) {
        even = _mm512_dpbusd_epi32(even, codes.v[i], broadcast4(x + 4 * i));
        odd = _mm512_dpbusd_epi32(odd, codes.v[i + 1], broadcast4(x + 4 * i + 4));
    }
    return _mm512_add_epi32(even, odd);
}

template <class Tile, int Planes>
INLINE Part dot(const Tile&, const Codes& codes, const Activation<Planes>& x) {
    // kLow * (sum of the integers): `offset` is -128 times that sum.
    __m512i start = _mm512_setzero_si512();
    if constexpr (Tile::kLow != 0) start = _mm512_set1_epi32(x.offset / (-128 / Tile::kLow));
    if (Planes == 1) return to_float(Int{dot_plane(start, codes, x.planes[0])});
    __m512i high = dot_plane(_mm512_setzero_si512(), codes, x.planes[0]);
    return to_float(Int{_mm512_add_epi32(_mm512_slli_epi32(high, 8), dot_plane(start, codes, x.planes[Planes - 1]))});
}

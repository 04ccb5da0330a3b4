// Products of one weight tile with a row, for AVX2: the eight outputs of a half tile at a time.
#pragma once

constexpr int kParts = 2;
using Part = __m256;
INLINE Part& part_of(Vec& acc, int part) { return part ? acc.hi : acc.lo; }
INLINE Part splat_part(float x) { return _mm256_set1_ps(x); }
INLINE Part load_part(const uint16_t* halves, int part) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(halves + 8 * part)));
}

INLINE __m256i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}

INLINE __m256i widen_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Integers of a half tile: i holds inputs 4 i to 4 i + 3 of 8 outputs.
struct Codes {
    __m256i v[8];
};

template <class Tile>
INLINE Codes unpack(const Tile& w, int part) {
    const __m256i nibble = _mm256_set1_epi8(15), low = _mm256_set1_epi8(Tile::kLow);
    const auto* bytes = (const __m256i*)(w.codes + 32 * part);  // every other one is of this part
    Codes c;
    if constexpr (Tile::kBits == 4) {
        for (int i = 0; i < 4; i++) {
            __m256i pair = _mm256_loadu_si256(bytes + 2 * i);
            c.v[i] = _mm256_and_si256(pair, nibble);
            c.v[i + 4] = _mm256_and_si256(_mm256_srli_epi16(pair, 4), nibble);
        }
    } else {
        static_assert(Tile::kBits == 8, "how are these unpacked?");
        for (int i = 0; i < 8; i++) c.v[i] = _mm256_loadu_si256(bytes + 2 * i);
    }
    for (int i = 0; i < 8 && Tile::kLow; i++) c.v[i] = _mm256_add_epi8(c.v[i], low);
    return c;
}

// Codes from 0 to 15 and activations up to 127: eight sums of two products stay below 2^15.
INLINE __m256i dot_small(const Codes& codes, const int8_t* x) {
    __m256i pairs = _mm256_maddubs_epi16(codes.v[0], broadcast4(x));
    for (int i = 1; i < 8; i++)
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes.v[i], broadcast4(x + 4 * i)));
    return widen_pairs(pairs);
}

// Code + 128 against activations would saturate maddubs; |code| x (sign of the code on the activation) cannot, as
// activations never reach -128.
INLINE __m256i dot_any(const Codes& codes, const int8_t* x) {
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < 8; i++) {
        __m256i signed_x = _mm256_sign_epi8(broadcast4(x + 4 * i), codes.v[i]);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes.v[i]), signed_x);
        total = _mm256_add_epi32(total, widen_pairs(pairs));
    }
    return total;
}

template <class Tile, int Planes>
INLINE Part dot(const Tile&, const Codes& codes, const Activation<Planes>& x) {
    constexpr bool small = Tile::kBits <= 4 && Tile::kLow == 0;
    __m256i dot = small ? dot_small(codes, x.planes[0]) : dot_any(codes, x.planes[0]);
    if (Planes == 2) {
        const int8_t* low = x.planes[Planes - 1];
        dot = _mm256_add_epi32(_mm256_slli_epi32(dot, 8), small ? dot_small(codes, low) : dot_any(codes, low));
    }
    return _mm256_cvtepi32_ps(dot);
}

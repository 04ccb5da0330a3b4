// Products of one group of a weight tile with a row, for AVX2: the eight outputs of a half tile at a time.
#pragma once

constexpr int kParts = 2;     // of a tile's outputs, one after the other
constexpr int kTogether = 1;  // rows whose products are made side by side
constexpr int kFew = 1;       // rows up to which sums stay in registers
constexpr bool kCanRaise = true;
using Part = __m256;
INLINE Part splat_part(float x) { return _mm256_set1_ps(x); }
INLINE Part load_part(const uint16_t* halves, int part) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(halves + 8 * part)));
}
INLINE Part load_part(const float* p, int part) { return _mm256_loadu_ps(p + 8 * part); }
INLINE Part load_part(const uint8_t* bytes, int part) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(bytes + 8 * part))));
}
INLINE void store_part(float* p, Part a) { _mm256_storeu_ps(p, a); }
INLINE Part fma_part(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }

INLINE __m256i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}

INLINE __m256i widen_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Integers of a group of a half tile: i holds inputs 4 i to 4 i + 3 of 8 outputs.
struct Codes {
    __m256i v[8];
};

// Those of more than seven bits would saturate as unsigned factors, so they are made signed.
template <class Tile>
constexpr bool kSigned = Tile::most() > 127;

typedef uint16_t Shorts __attribute__((vector_size(32)));

// Vector i of a plane of B bits, as fields that begin at bit `At` of each byte.
template <int B, int At>
INLINE __m256i fields(const uint8_t* plane, int i) {
    __m256i v = _mm256_loadu_si256((const __m256i*)(plane + 64 * (i % B)));
    if constexpr (B == 8) return v;
    int shift = i / B * B - At;  // to the right
    if (shift > 0) v = (__m256i)((Shorts)v >> shift);
    if (shift < 0) v = (__m256i)((Shorts)v << -shift);
    return _mm256_and_si256(v, _mm256_set1_epi8(((1 << B) - 1) << At));
}

template <class Tile>
INLINE Codes unpack(const Tile& w, int group, int part) {
    const uint8_t* codes = w.codes[group] + 32 * part;  // every other 32 bytes are of this part
    Codes c;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        c.v[i] = fields<Tile::kLowBits, 0>(codes, i);
        if constexpr (Tile::kHighBits > 0)
            c.v[i] = _mm256_or_si256(c.v[i], fields<Tile::kHighBits, Tile::kLowBits>(codes + 64 * Tile::kLowBits, i));
    }
    const __m256i low = _mm256_set1_epi8((char)Tile::kLow);
    if constexpr (Tile::kTable) {
        __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)Tile::table()));
        if constexpr (!kSigned<Tile>) entries = _mm256_sub_epi8(entries, low);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) c.v[i] = _mm256_shuffle_epi8(entries, c.v[i]);
    } else if constexpr (kSigned<Tile>) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) c.v[i] = _mm256_add_epi8(c.v[i], low);
    }
    return c;
}

// Of the vectors First to First + Count, with integers from 0 to Most and activations up to 127: sums of two products are
// added up as long as they stay below 2^15, then to `total`.
template <int Most, int First, int Count>
INLINE __m256i dot_unsigned(const Codes& codes, const int8_t* x, __m256i total) {
    constexpr int fitting = 32767 / (2 * 127 * Most), run = fitting < Count ? fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1 : Count;
#pragma GCC unroll 8
    for (int first = First; first < First + Count; first += run) {
        __m256i pairs = _mm256_maddubs_epi16(codes.v[first], broadcast4(x + 4 * first));
#pragma GCC unroll 8
        for (int i = first + 1; i < first + run; i++)
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes.v[i], broadcast4(x + 4 * i)));
        total = _mm256_add_epi32(total, widen_pairs(pairs));
    }
    return total;
}

// Code + 128 against activations would saturate maddubs; |code| x (sign of the code on the activation) cannot, as
// activations never reach -128.
template <int First, int Count>
INLINE __m256i dot_signed(const Codes& codes, const int8_t* x, __m256i total) {
#pragma GCC unroll 8
    for (int i = First; i < First + Count; i++) {
        __m256i signed_x = _mm256_sign_epi8(broadcast4(x + 4 * i), codes.v[i]);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes.v[i]), signed_x);
        total = _mm256_add_epi32(total, widen_pairs(pairs));
    }
    return total;
}

template <class Tile, int First, int Count>
INLINE __m256i dot_plane(const Codes& codes, const int8_t* x, __m256i total) {
    if constexpr (kSigned<Tile>) return dot_signed<First, Count>(codes, x, total);
    else return dot_unsigned<Tile::most(), First, Count>(codes, x, total);
}

template <class Tile, int First, int Count, int Planes, int Rows>
INLINE void dots(const Codes& codes, const Activation<Planes>* x, Part* out) {
    static_assert(Rows == 1, "rows go one after the other");
    constexpr bool offset = Tile::kLow != 0 && !kSigned<Tile>;
    constexpr int shift = offset ? __builtin_ctz(-128 / Tile::kLow) : 0;
    constexpr int32_t begin = (Planes == 1 ? kRaised : 0) - (offset ? kRaised >> shift : 0);
    __m256i total = _mm256_setzero_si256();
    if (Planes == 2) total = _mm256_slli_epi32(dot_plane<Tile, First, Count>(codes, x->planes[0], total), 8);
    if (begin != 0) total = _mm256_add_epi32(total, _mm256_set1_epi32(begin));
    if (offset)
        total = _mm256_add_epi32(
            total, _mm256_srai_epi32(_mm256_set1_epi32(Count == 8 ? x->offset : x->offsets[First / 4]), shift));
    total = dot_plane<Tile, First, Count>(codes, x->planes[Planes - 1], total);
    *out = Planes == 2 ? _mm256_cvtepi32_ps(total) : _mm256_castsi256_ps(total);
}

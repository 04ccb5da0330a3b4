// Sixteen float or int32 lanes in one AVX-512 register.
#pragma once

constexpr int kSums = 24;  // vectors that a loop can keep in registers beside its operands

#define INLINE static inline __attribute__((always_inline))

struct Vec {
    __m512 v;
};
struct Int {
    __m512i v;
};
using Mask = __mmask16;
typedef uint32_t Words __attribute__((vector_size(64)));

INLINE Mask first_lanes(int n) { return (Mask)((1u << n) - 1); }

INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE Vec load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
INLINE void store_first(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c, rounded once
INLINE Vec greater(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }  // a > b ? a : b
INLINE Vec lesser(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }   // a < b ? a : b
INLINE Mask operator>(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
INLINE Mask unordered(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m, b.v, a.v)}; }  // m ? a : b
INLINE unsigned bits_of(Mask m) { return m; }

INLINE Vec load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
INLINE Vec load_bf16(const uint16_t* p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
INLINE Vec load_int8(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)))};
}
INLINE void store_f16(uint16_t* p, Vec a) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE Vec load_doubled(const float* p) {  // p[0] p[0] p[1] p[1] ...
    __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return {_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}
INLINE Vec swap_pairs(Vec a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
INLINE Vec negate_even(Vec a) { return {_mm512_xor_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000)))}; }

INLINE Int splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
INLINE Int load_int(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE Int load_bytes(const uint8_t* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
INLINE void store_int(int32_t* p, Int a) { _mm512_storeu_si512(p, a.v); }
INLINE Int round_to_int(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }
INLINE Int truncate_to_int(Vec a) { return {_mm512_cvttps_epi32(a.v)}; }
INLINE Vec to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }
INLINE Int as_int(Vec a) { return {_mm512_castps_si512(a.v)}; }
INLINE Vec as_float(Int a) { return {_mm512_castsi512_ps(a.v)}; }
INLINE Int operator+(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
INLINE Int operator-(Int a, Int b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE Int operator*(Int a, Int b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
INLINE Int operator&(Int a, Int b) { return {_mm512_and_si512(a.v, b.v)}; }
INLINE Int operator|(Int a, Int b) { return {_mm512_or_si512(a.v, b.v)}; }
INLINE Int operator^(Int a, Int b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
INLINE Int shift_left(Int a) {
    return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
INLINE Int shift_right(Int a) {  // fills with zeros
    return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
INLINE Int shift_right_signed(Int a) {
    return {_mm512_srai_epi32(a.v, N)};
}
INLINE Int operator<<(Int a, int n) { return {(__m512i)((Words)a.v << n)}; }
INLINE Int operator>>(Int a, int n) { return {(__m512i)((Words)a.v >> n)}; }  // fills with zeros
INLINE Int greater(Int a, Int b) { return {_mm512_max_epi32(a.v, b.v)}; }
INLINE void store_int8(int8_t* p, Int a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
INLINE void store_low_bytes(uint8_t* p, Int a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
INLINE void store_low_halves(uint16_t* p, Int a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(a.v)); }

INLINE __m512i load_every_fourth(const uint8_t* const* rows, ptrdiff_t at) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)(rows[0] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(rows[4] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(rows[8] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(rows[12] + at)), 3);
}
// Sixteen bytes of each of sixteen rows: a lane has those of a row, four in each of `words`.
INLINE void load_rows(const uint8_t* const* rows, ptrdiff_t at, Int* words) {
    __m512i a = load_every_fourth(rows, at), b = load_every_fourth(rows + 1, at);
    __m512i c = load_every_fourth(rows + 2, at), d = load_every_fourth(rows + 3, at);
    __m512i first = _mm512_unpacklo_epi32(a, b), second = _mm512_unpacklo_epi32(c, d);
    __m512i third = _mm512_unpackhi_epi32(a, b), fourth = _mm512_unpackhi_epi32(c, d);
    words[0].v = _mm512_unpacklo_epi64(first, second);
    words[1].v = _mm512_unpackhi_epi64(first, second);
    words[2].v = _mm512_unpacklo_epi64(third, fourth);
    words[3].v = _mm512_unpackhi_epi64(third, fourth);
}

// The one order in which lanes are joined: halves upon halves, 8, 4, 2, 1.
INLINE float sum(Vec a) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), high);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
INLINE int32_t sum(Int a) { return _mm512_reduce_add_epi32(a.v); }
INLINE int32_t largest(Int a) { return _mm512_reduce_max_epi32(a.v); }
INLINE float largest(Vec a) {  // without NaN any order gives the same value
    return _mm512_reduce_max_ps(a.v);
}

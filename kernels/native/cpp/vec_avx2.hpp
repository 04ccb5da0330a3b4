// Sixteen float or int32 lanes in two AVX2 registers.
#pragma once

constexpr int kSums = 4;

#define INLINE static inline __attribute__((always_inline))

struct Vec {
    __m256 lo, hi;
};
struct Int {
    __m256i lo, hi;
};
struct Mask {
    __m256 lo, hi;
};
typedef uint32_t Words __attribute__((vector_size(32)));

INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, Vec a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
INLINE Vec load_first(const float* p, int n) {
    float lanes[kLanes] = {0};
    memcpy(lanes, p, (size_t)n * sizeof(float));
    return load(lanes);
}
INLINE void store_first(float* p, Vec a, int n) {
    float lanes[kLanes];
    store(lanes, a);
    memcpy(p, lanes, (size_t)n * sizeof(float));
}
INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
INLINE Vec greater(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
INLINE Vec lesser(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
INLINE Mask operator>(Vec a, Vec b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
INLINE Mask unordered(Vec a) {
    return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
INLINE Vec select(Mask m, Vec a, Vec b) {
    return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
INLINE unsigned bits_of(Mask m) {
    return (unsigned)_mm256_movemask_ps(m.lo) | (unsigned)_mm256_movemask_ps(m.hi) << 8;
}

INLINE Vec load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
INLINE __m256 widen_bf16(const uint16_t* p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE Vec load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
INLINE __m256 widen_int8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
INLINE Vec load_int8(const int8_t* p) { return {widen_int8(p), widen_int8(p + 8)}; }
INLINE void store_f16(uint16_t* p, Vec a) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

INLINE __m256 double_lanes(__m128 a) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(a), _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
}
INLINE Vec load_doubled(const float* p) { return {double_lanes(_mm_loadu_ps(p)), double_lanes(_mm_loadu_ps(p + 4))}; }
INLINE Vec swap_pairs(Vec a) { return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
INLINE Vec negate_even(Vec a) {
    __m256 signs = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
    return {_mm256_xor_ps(a.lo, signs), _mm256_xor_ps(a.hi, signs)};
}

INLINE Int splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE Int load_int(const int32_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
}
INLINE Int load_bytes(const uint8_t* p) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
}
INLINE void store_int(int32_t* p, Int a) {
    _mm256_storeu_si256((__m256i*)p, a.lo);
    _mm256_storeu_si256((__m256i*)(p + 8), a.hi);
}
INLINE Int round_to_int(Vec a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
INLINE Int truncate_to_int(Vec a) { return {_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)}; }
INLINE Vec to_float(Int a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
INLINE Int as_int(Vec a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
INLINE Vec as_float(Int a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
INLINE Int operator+(Int a, Int b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
INLINE Int operator-(Int a, Int b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
INLINE Int operator*(Int a, Int b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
INLINE Int operator&(Int a, Int b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
INLINE Int operator|(Int a, Int b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
INLINE Int operator^(Int a, Int b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
template <int N>
INLINE Int shift_left(Int a) {
    return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>
INLINE Int shift_right(Int a) {
    return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
template <int N>
INLINE Int shift_right_signed(Int a) {
    return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
INLINE Int operator<<(Int a, int n) { return {(__m256i)((Words)a.lo << n), (__m256i)((Words)a.hi << n)}; }
INLINE Int operator>>(Int a, int n) { return {(__m256i)((Words)a.lo >> n), (__m256i)((Words)a.hi >> n)}; }
INLINE Int greater(Int a, Int b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
INLINE void store_int8(int8_t* p, Int a) {  // lanes fit into int8: the saturating packs keep them
    __m128i lo = _mm_packs_epi32(_mm256_castsi256_si128(a.lo), _mm256_extracti128_si256(a.lo, 1));
    __m128i hi = _mm_packs_epi32(_mm256_castsi256_si128(a.hi), _mm256_extracti128_si256(a.hi, 1));
    _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(lo, hi));
}
INLINE __m256i low_halves(Int a) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i mixed = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
    return _mm256_permute4x64_epi64(mixed, 0xd8);
}
INLINE void store_low_halves(uint16_t* p, Int a) { _mm256_storeu_si256((__m256i*)p, low_halves(a)); }
INLINE void store_low_bytes(uint8_t* p, Int a) {
    __m256i halves = low_halves(a & splat_int(255));
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    _mm_storeu_si128((__m128i*)p, bytes);
}

INLINE __m256i load_two(const uint8_t* first, const uint8_t* second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)first)),
                                   _mm_loadu_si128((const __m128i*)second), 1);
}
INLINE void load_rows(const uint8_t* const* rows, ptrdiff_t at, __m256i* words) {  // eight
    __m256i a = load_two(rows[0] + at, rows[4] + at), b = load_two(rows[1] + at, rows[5] + at);
    __m256i c = load_two(rows[2] + at, rows[6] + at), d = load_two(rows[3] + at, rows[7] + at);
    __m256i first = _mm256_unpacklo_epi32(a, b), second = _mm256_unpacklo_epi32(c, d);
    __m256i third = _mm256_unpackhi_epi32(a, b), fourth = _mm256_unpackhi_epi32(c, d);
    words[0] = _mm256_unpacklo_epi64(first, second);
    words[1] = _mm256_unpackhi_epi64(first, second);
    words[2] = _mm256_unpacklo_epi64(third, fourth);
    words[3] = _mm256_unpackhi_epi64(third, fourth);
}
INLINE void load_rows(const uint8_t* const* rows, ptrdiff_t at, Int* words) {
    __m256i lo[4], hi[4];
    load_rows(rows, at, lo);
    load_rows(rows + 8, at, hi);
    for (int i = 0; i < 4; i++) words[i] = {lo[i], hi[i]};
}

INLINE float sum(Vec a) {
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
INLINE int32_t sum(Int a) {
    __m256i b = _mm256_add_epi32(a.lo, a.hi);
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    __m128i d = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}
INLINE int32_t largest(Int a) {
    __m256i b = _mm256_max_epi32(a.lo, a.hi);
    __m128i c = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    __m128i d = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}
INLINE float largest(Vec a) {
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// Products of one weight tile with a block of quantized rows, for AVX2. The eight outputs of a half tile at a time.
#pragma once

INLINE __m256i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}

INLINE __m256i widen_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Codes up to 15 and activations up to 127: eight sums of two products stay below 2^15.
INLINE __m256i dot_group4(const __m256i codes[8], const int8_t* x) {
    __m256i pairs = _mm256_maddubs_epi16(codes[0], broadcast4(x));
    for (int i = 1; i < 8; i++)
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes[i], broadcast4(x + 4 * i)));
    return widen_pairs(pairs);
}

// Code + 128 against activations would saturate maddubs; |code| x (sign of the code on the activation) cannot, as
// activations never reach -128.
INLINE __m256i dot_group8(const __m256i codes[8], const int8_t* x) {
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < 8; i++) {
        __m256i signed_x = _mm256_sign_epi8(broadcast4(x + 4 * i), codes[i]);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[i]), signed_x);
        total = _mm256_add_epi32(total, widen_pairs(pairs));
    }
    return total;
}

template <int Planes, bool FourBits>
INLINE __m256 dot_planes(const __m256i codes[8], const Activation<Planes>& x) {
    __m256i dot = FourBits ? dot_group4(codes, x.planes[0]) : dot_group8(codes, x.planes[0]);
    if (Planes == 2) {
        const int8_t* low = x.planes[Planes - 1];
        dot = _mm256_add_epi32(_mm256_slli_epi32(dot, 8), FourBits ? dot_group4(codes, low) : dot_group8(codes, low));
    }
    return _mm256_cvtepi32_ps(dot);
}

INLINE __m256 half_of(const Vec& a, int half) { return half ? a.hi : a.lo; }
INLINE __m256 load_half_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }

template <int Rows, int Planes>
INLINE void multiply(const Q4Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        for (int half = 0; half < 2; half++) {
            __m256i codes[8];
            for (int i = 0; i < 4; i++) {
                __m256i pair = _mm256_loadu_si256((const __m256i*)(w->codes + 64 * i + 32 * half));
                codes[i] = _mm256_and_si256(pair, mask);
                codes[i + 4] = _mm256_and_si256(_mm256_srli_epi16(pair, 4), mask);
            }
            __m256 scales = load_half_f16(w->scales + 8 * half), minima = load_half_f16(w->minima + 8 * half);
            for (int j = 0; j < Rows; j++) {
                __m256 dot = _mm256_mul_ps(dot_planes<Planes, true>(codes, x[j]), scales);
                __m256 total = _mm256_add_ps(half_of(acc[j], half), _mm256_mul_ps(dot, _mm256_set1_ps(x[j].scale)));
                total = _mm256_add_ps(total, _mm256_mul_ps(minima, _mm256_set1_ps(x[j].sum)));
                (half ? acc[j].hi : acc[j].lo) = total;
            }
        }
    }
}

template <int Rows, int Planes>
INLINE void multiply(const Q8Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    const __m256i top = _mm256_set1_epi8(-128);
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        for (int half = 0; half < 2; half++) {
            __m256i codes[8];
            for (int i = 0; i < 8; i++) {
                __m256i biased = _mm256_loadu_si256((const __m256i*)(w->codes + 64 * i + 32 * half));
                codes[i] = _mm256_xor_si256(biased, top);
            }
            __m256 scales = load_half_f16(w->scales + 8 * half);
            for (int j = 0; j < Rows; j++) {
                __m256 dot = _mm256_mul_ps(dot_planes<Planes, false>(codes, x[j]), scales);
                __m256 total = _mm256_add_ps(half_of(acc[j], half), _mm256_mul_ps(dot, _mm256_set1_ps(x[j].scale)));
                (half ? acc[j].hi : acc[j].lo) = total;
            }
        }
    }
}

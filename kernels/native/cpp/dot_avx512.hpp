// Products of one weight tile with a block of quantized rows, for AVX-512 VNNI.
#pragma once

INLINE __m512i broadcast4(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

// Adds the products of unsigned codes with 32 activations: codes[i] holds inputs 4 i to 4 i + 3 of 16 outputs.
INLINE __m512i dot_group(__m512i start, const __m512i codes[8], const int8_t* x) {
    __m512i even = start, odd = _mm512_setzero_si512();
    for (int i = 0; i < 8; i += 2) {
        even = _mm512_dpbusd_epi32(even, codes[i], broadcast4(x + 4 * i));
        odd = _mm512_dpbusd_epi32(odd, codes[i + 1], broadcast4(x + 4 * i + 4));
    }
    return _mm512_add_epi32(even, odd);
}

template <int Planes>
INLINE Int dot_planes(__m512i start, const __m512i codes[8], const Activation<Planes>& x) {
    if (Planes == 1) return {dot_group(start, codes, x.planes[0])};
    __m512i high = dot_group(_mm512_setzero_si512(), codes, x.planes[0]);
    return {_mm512_add_epi32(_mm512_slli_epi32(high, 8), dot_group(start, codes, x.planes[Planes - 1]))};
}

template <int Rows, int Planes>
INLINE void multiply(const Q4Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        __m512i codes[8];
        for (int i = 0; i < 4; i++) {
            __m512i pair = _mm512_loadu_si512(w->codes + 64 * i);
            codes[i] = _mm512_and_si512(pair, mask);
            codes[i + 4] = _mm512_and_si512(_mm512_srli_epi16(pair, 4), mask);
        }
        Vec scales = load_f16(w->scales), minima = load_f16(w->minima);
        for (int j = 0; j < Rows; j++) {
            Vec dot = to_float(dot_planes<Planes>(_mm512_setzero_si512(), codes, x[j]));
            acc[j] = acc[j] + dot * scales * splat(x[j].scale);
            acc[j] = acc[j] + minima * splat(x[j].sum);
        }
    }
}

template <int Rows, int Planes>
INLINE void multiply(const Q8Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        __m512i codes[8];
        for (int i = 0; i < 8; i++) codes[i] = _mm512_loadu_si512(w->codes + 64 * i);
        Vec scales = load_f16(w->scales);
        for (int j = 0; j < Rows; j++) {
            Vec dot = to_float(dot_planes<Planes>(_mm512_set1_epi32(x[j].offset), codes, x[j]));
            acc[j] = acc[j] + dot * scales * splat(x[j].scale);
        }
    }
}

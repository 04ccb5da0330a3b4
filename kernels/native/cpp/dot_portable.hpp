// Products of one weight tile with a block of quantized rows, for any machine: vectors of eight int16 lanes, two
// outputs by four inputs, which compilers map to what the target has.
#pragma once

typedef int16_t Short8 __attribute__((vector_size(16), may_alias));
typedef int32_t Int8 __attribute__((vector_size(32)));

// Codes of a tile as int16; code 64 i + 4 n + t is input 4 i + t of output n.
struct Codes {
    alignas(16) int16_t v[512];
};

INLINE Codes codes_of(const Q4Tile& w) {
    Codes c;
    for (int i = 0; i < 256; i++) {
        c.v[i] = w.codes[i] & 15;
        c.v[256 + i] = w.codes[i] >> 4;
    }
    return c;
}

INLINE Codes codes_of(const Q8Tile& w) {
    Codes c;
    for (int i = 0; i < 512; i++) c.v[i] = (int16_t)(w.codes[i] - 128);
    return c;
}

// Eight products of 4-bit codes stay below 2^15, so they are summed as they are; those of 8-bit codes are not.
INLINE void add_products(Short8& sum, Short8 products) { sum += products; }
INLINE void add_products(Int8& sum, Short8 products) { sum += __builtin_convertvector(products, Int8); }

template <class Sum>
__attribute__((noinline)) static void dot_group(const Codes& codes, const int8_t* x, int32_t dots[kLanes]) {
    const Short8* code = (const Short8*)codes.v;
    Sum sums[8] = {};
    for (int i = 0; i < 8; i++, x += 4) {
        Short8 inputs = {x[0], x[1], x[2], x[3], x[0], x[1], x[2], x[3]};
        for (int pair = 0; pair < 8; pair++) add_products(sums[pair], *code++ * inputs);
    }
    for (int n = 0; n < kLanes; n++) {
        const Sum& s = sums[n / 2];
        int t = n % 2 * 4;
        dots[n] = s[t] + s[t + 1] + s[t + 2] + s[t + 3];
    }
}

template <class Sum, int Planes>
INLINE Vec dot_planes(const Codes& codes, const Activation<Planes>& x) {
    int32_t dots[kLanes], low[kLanes];
    dot_group<Sum>(codes, x.planes[0], dots);
    if (Planes == 2) {
        dot_group<Sum>(codes, x.planes[Planes - 1], low);
        for (int n = 0; n < kLanes; n++) dots[n] = dots[n] * 256 + low[n];
    }
    return to_float(load_int(dots));
}

template <int Rows, int Planes>
INLINE void multiply(const Q4Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        Codes codes = codes_of(*w);
        Vec scales = load_f16(w->scales), minima = load_f16(w->minima);
        for (int j = 0; j < Rows; j++) {
            acc[j] = acc[j] + dot_planes<Short8>(codes, x[j]) * scales * splat(x[j].scale);
            acc[j] = acc[j] + minima * splat(x[j].sum);
        }
    }
}

template <int Rows, int Planes>
INLINE void multiply(const Q8Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        Codes codes = codes_of(*w);
        Vec scales = load_f16(w->scales);
        for (int j = 0; j < Rows; j++)
            acc[j] = acc[j] + dot_planes<Int8>(codes, x[j]) * scales * splat(x[j].scale);
    }
}

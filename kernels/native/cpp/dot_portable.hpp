// Products of one weight tile with a block of quantized rows, in plain C++.
#pragma once

// Code 64 i + 4 n + t is input 4 i + t of output n, as in a q8 tile. A function of its own keeps the code small.
__attribute__((noinline)) static void dot_group(const int16_t* codes, const int8_t* x, int32_t dots[kLanes]) {
    for (int n = 0; n < kLanes; n++) {
        int32_t total = 0;
        for (int i = 0; i < 8; i++)
            for (int t = 0; t < 4; t++) total += codes[64 * i + 4 * n + t] * x[4 * i + t];
        dots[n] = total;
    }
}

template <int Planes>
INLINE Vec dot_planes(const int16_t* codes, const Activation<Planes>& x) {
    int32_t dots[kLanes], low[kLanes];
    dot_group(codes, x.planes[0], dots);
    if (Planes == 2) {
        dot_group(codes, x.planes[Planes - 1], low);
        for (int n = 0; n < kLanes; n++) dots[n] = dots[n] * 256 + low[n];
    }
    return to_float(load_int(dots));
}

template <int Rows, int Planes>
INLINE void multiply(const Q4Tile* w, int groups, const Activation<Planes>* x, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += Rows) {
        prefetch(w, sizeof *w);
        int16_t codes[512];
        for (int i = 0; i < 256; i++) {
            codes[i] = w->codes[i] & 15;
            codes[256 + i] = w->codes[i] >> 4;
        }
        Vec scales = load_f16(w->scales), minima = load_f16(w->minima);
        for (int j = 0; j < Rows; j++) {
            Vec dot = dot_planes<Planes>(codes, x[j]);
            acc[j] = acc[j] + dot * scales * splat(x[j].scale);
            acc[j] = acc[j] + minima * splat(x[j].sum);
        }
    }
}

template <int Rows, int Planes>
INLINE void multiply(const Q8Tile* w, int groups, const Activation<Planes>* x, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += Rows) {
        prefetch(w, sizeof *w);
        int16_t codes[512];
        for (int i = 0; i < 512; i++) codes[i] = (int16_t)(w->codes[i] - 128);
        Vec scales = load_f16(w->scales);
        for (int j = 0; j < Rows; j++) {
            Vec dot = dot_planes<Planes>(codes, x[j]);
            acc[j] = acc[j] + dot * scales * splat(x[j].scale);
        }
    }
}

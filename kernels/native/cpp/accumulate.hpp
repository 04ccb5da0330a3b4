// acc[j][s] += a[j][k] * b[k][s] for k in order, s being strips of 16 lanes: the step that unquantized products are made
// of.
#pragma once

struct F32 {
    using Type = float;
    INLINE Vec load(const float* p) { return ISA::load(p); }
};
struct F16 {
    using Type = uint16_t;
    INLINE Vec load(const uint16_t* p) { return load_f16(p); }
};
struct BF16 {
    using Type = uint16_t;
    INLINE Vec load(const uint16_t* p) { return load_bf16(p); }
};

// a: [Rows][a_stride]; b: [steps][b_stride], its strips b_strip apart.
template <class Format, int Rows, int Strips>
INLINE void accumulate(Vec acc[Rows][Strips], const float* a, ptrdiff_t a_stride, const typename Format::Type* b,
                       ptrdiff_t b_stride, ptrdiff_t b_strip, int steps) {
    for (int k = 0; k < steps; k++, b += b_stride) {
        Vec lanes[Strips];
        for (int s = 0; s < Strips; s++) lanes[s] = Format::load(b + s * b_strip);
        for (int j = 0; j < Rows; j++) {
            Vec x = splat(a[j * a_stride + k]);
            for (int s = 0; s < Strips; s++) acc[j][s] = acc[j][s] + x * lanes[s];
        }
    }
}

// Runs call(n) for n = rows, at most 8.
#define WITH_ROWS(rows, call) \
    switch (rows) {           \
        case 1: call(1);      \
        case 2: call(2);      \
        case 3: call(3);      \
        case 4: call(4);      \
        case 5: call(5);      \
        case 6: call(6);      \
        case 7: call(7);      \
        default: call(8);     \
    }

// acc[j] += a[j][k] * b[k] for k in order: the step that unquantized products and attention are made of.
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

// b: [steps][b_stride], 16 lanes of each; a: [Rows][a_stride].
template <class Format, int Rows>
INLINE void accumulate(Vec acc[Rows], const float* a, ptrdiff_t a_stride, const typename Format::Type* b,
                       ptrdiff_t b_stride, int steps) {
    for (int k = 0; k < steps; k++, b += b_stride) {
        Vec lanes = Format::load(b);
        for (int j = 0; j < Rows; j++) acc[j] = acc[j] + splat(a[j * a_stride + k]) * lanes;
    }
}

// The same with loads from and stores to acc [rows][acc_stride], rows at most 8 at a time.
template <class Format, int Rows>
static void accumulate_rows(float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                            const typename Format::Type* b, ptrdiff_t b_stride, int steps) {
    Vec sums[Rows];
    for (int j = 0; j < Rows; j++) sums[j] = load(acc + j * acc_stride);
    accumulate<Format, Rows>(sums, a, a_stride, b, b_stride, steps);
    for (int j = 0; j < Rows; j++) store(acc + j * acc_stride, sums[j]);
}

// Calls Function<1..8>(arguments) for the runtime number of rows.
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

template <class Format>
static void accumulate_any(int rows, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                           const typename Format::Type* b, ptrdiff_t b_stride, int steps) {
    for (; rows > 0; rows -= 8, acc += 8 * acc_stride, a += 8 * a_stride) {
#define CALL(n)                                                                      \
    accumulate_rows<Format, n>(acc, acc_stride, a, a_stride, b, b_stride, steps); \
    break
        WITH_ROWS(rows, CALL)
#undef CALL
    }
}

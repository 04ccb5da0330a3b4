// acc[j][s] += a[j][k] * b[k][s] for k in order, s being strips of 16 lanes: the step that unquantized products and
// attention are made of.
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

// The same on acc in memory, [Rows][acc_stride].
template <class Format, int Rows, int Strips>
static void accumulate_block(float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                             const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps) {
    Vec sums[Rows][Strips];
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) sums[j][s] = load(acc + j * acc_stride + s * kLanes);
    accumulate<Format, Rows, Strips>(sums, a, a_stride, b, b_stride, b_strip, steps);
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) store(acc + j * acc_stride + s * kLanes, sums[j][s]);
}

// For `rows` rows at most 8, by as many strips as the registers hold: independent sums hide the latency of one.
template <class Format, int Rows>
static void accumulate_rows(float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                            const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps,
                            int strips) {
    constexpr int most = kSums / Rows >= 4 ? 4 : kSums / Rows >= 2 ? 2 : 1;
    int s = 0;
    for (; s + most <= strips; s += most)
        accumulate_block<Format, Rows, most>(acc + s * kLanes, acc_stride, a, a_stride, b + s * b_strip, b_stride,
                                             b_strip, steps);
    for (; s < strips; s++)
        accumulate_block<Format, Rows, 1>(acc + s * kLanes, acc_stride, a, a_stride, b + s * b_strip, b_stride, b_strip,
                                          steps);
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

template <class Format>
static void accumulate_any(int rows, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                           const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps,
                            int strips) {
    for (; rows > 0; rows -= 8, acc += 8 * acc_stride, a += 8 * a_stride) {
#define CALL(n)                                                                                    \
    accumulate_rows<Format, n>(acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps, strips); \
    break
        WITH_ROWS(rows, CALL)
#undef CALL
    }
}

// Products of a few float rows with strips of 16 columns, added to what is there by fused multiply-adds.
#pragma once

constexpr int kMostRows = 12;  // of a block of products: more would only add to the code

INLINE Vec lanes_of(const float* p) { return load(p); }
INLINE Vec lanes_of(const uint16_t* p) { return load_f16(p); }
INLINE Vec lanes_of(const Bf16* p) { return load_bf16(&p->bits); }
INLINE Vec lanes_of(const int8_t* p) { return load_int8(p); }

// acc[j][s] = fma(a[j][k], b[k][s], acc[j][s]) for k in order, s being strips of 16 lanes. a: [Rows][a_stride];
// b: [steps][b_stride], its strips b_strip apart; acc: [Rows][acc_stride] in memory, taken as zeros if `Fresh`.
// next: null, or memory of the size of b that is fetched meanwhile.
template <class Type, bool Fresh, int Rows, int Strips>
static void fuse_block(float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                       const Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps,
                       const Type* next) {
    constexpr int step_values = Strips * kLanes, line = 64 / sizeof *b;
    Vec sums[Rows][Strips];
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) sums[j][s] = Fresh ? splat(0.0f) : load(acc + j * acc_stride + s * kLanes);
    int k = 0;
    do {  // at least one step: otherwise GCC keeps the sums in memory, too
        if (next) {
            for (int i = 0; i < step_values; i += line) fetch_near(next + i);
            next += step_values;
        }
        Vec lanes[Strips];
        for (int s = 0; s < Strips; s++) lanes[s] = lanes_of(b + s * b_strip);
        for (int j = 0; j < Rows; j++) {
            Vec x = splat(a[j * a_stride + k]);
            for (int s = 0; s < Strips; s++) sums[j][s] = fma(x, lanes[s], sums[j][s]);
        }
        b += b_stride;
    } while (++k < steps);
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) store(acc + j * acc_stride + s * kLanes, sums[j][s]);
}

// For any number of rows, as many at a time as the registers hold: they share what is loaded of b.
template <class Type, bool Fresh, int Strips, int Rows = (kSums / Strips < kMostRows ? kSums / Strips : kMostRows)>
static void fuse_rows(int rows, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                      const Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps,
                      const Type* next) {
    for (; rows >= Rows; rows -= Rows, acc += Rows * acc_stride, a += Rows * a_stride, next = nullptr)
        fuse_block<Type, Fresh, Rows, Strips>(acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps, next);
    if constexpr (Rows > 1)
        if (rows > 0)
            fuse_rows<Type, Fresh, Strips, Rows - 1>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps,
                                                       next);
}

template <class Type, bool Fresh>
static void fuse(int rows, int strips, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                 const Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps,
                 const Type* next) {
    auto take = [&](int n) {
        strips -= n, acc += n * kLanes, b += n * b_strip;
        if (next) next += n * kLanes * (ptrdiff_t)steps;
    };
    if constexpr (kSums >= 16 && !Fresh)  // of scores, a run has at most two strips
        for (; strips >= 4; take(4))
            fuse_rows<Type, Fresh, 4>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps, next);
    for (; strips >= 2; take(2))
        fuse_rows<Type, Fresh, 2>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps, next);
    if (strips) fuse_rows<Type, Fresh, 1>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps, next);
}

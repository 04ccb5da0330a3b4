// x @ weight.T for ranges of tiles and rows: products, bias and residual.
#pragma once

template <int Rows>
INLINE void finish(const LinearArgs& a, int tile, int row, const Vec acc[Rows]) {
    int column = tile * kLanes, count = a.outputs - column;
    for (int j = 0; j < Rows; j++) {
        Vec y = acc[j];
        float* out = a.out + (row + j) * a.out_stride + column;
        const float* residual = a.residual ? a.residual + (row + j) * a.residual_stride + column : nullptr;
        if (count >= kLanes) {
            if (a.bias) y = y + load(a.bias + column);
            if (residual) y = y + load(residual);
            store(out, y);
        } else {
            if (a.bias) y = y + load_first(a.bias + column, count);
            if (residual) y = y + load_first(residual, count);
            store_first(out, y, count);
        }
    }
}

template <class Tile, int Planes, int Rows>
static void quantized_block(const LinearArgs& a, int tile, int row, Prefetch prefetch) {
    Vec acc[Rows];
    for (int j = 0; j < Rows; j++) acc[j] = splat(0.0f);
    const Activation<Planes>* x = (const Activation<Planes>*)a.blocks + (size_t)row * a.groups;
    multiply<Rows, Planes>((const Tile*)a.tiles + (size_t)tile * a.groups, a.groups, x, prefetch, acc);
    finish<Rows>(a, tile, row, acc);
}

template <class Format, int Rows>
static void plain_block(const LinearArgs& a, int tile, int row) {
    Vec acc[Rows][1];
    for (int j = 0; j < Rows; j++) acc[j][0] = splat(0.0f);
    const auto* w = (const typename Format::Type*)a.tiles + (size_t)tile * a.columns * kLanes;
    accumulate<Format, Rows, 1>(acc, a.x + row * a.x_stride, a.x_stride, w, kLanes, 0, a.columns);
    finish<Rows>(a, tile, row, acc[0]);
}

// Blocks of rows within tiles within rows that stay close.
#define FOR_EACH_BLOCK(call)                                                                       \
    for (int near = a.row_begin; near < a.row_end; near += a.near_rows) {                          \
        int near_end = near + a.near_rows < a.row_end ? near + a.near_rows : a.row_end;            \
        int passes = (near_end - near + kBlockRows - 1) / kBlockRows;                              \
        for (int tile = a.tile_begin; tile < a.tile_end; tile++) {                                 \
            for (int pass = 0; pass < passes; pass++) {                                            \
                int row = near + pass * kBlockRows;                                                \
                WITH_ROWS(near_end - row, call)                                                    \
            }                                                                                      \
        }                                                                                          \
    }

template <class Tile, int Planes>
static void quantized_linear(const LinearArgs& a) {
#define CALL(n)                                                             \
    quantized_block<Tile, Planes, n>(a, tile, row, Prefetch(pass, passes)); \
    break
    FOR_EACH_BLOCK(CALL)
#undef CALL
}

template <class Format>
static void plain_linear(const LinearArgs& a) {
#define CALL(n)                           \
    plain_block<Format, n>(a, tile, row); \
    break
    FOR_EACH_BLOCK(CALL)
#undef CALL
}

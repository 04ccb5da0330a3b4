// x @ weight.T for ranges of tiles and rows: products with bias and residual, or a gated pair of products.
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

// One tile's products and bias, as [Rows][16] in memory. Not inlined: gated_block needs it four times.
template <class Tile, int Planes, int Rows>
__attribute__((noinline)) static void tile_products(const GatedArgs& a, bool up, int tile, int row, Prefetch prefetch,
                                                    float* out) {
    Vec acc[Rows];
    for (int j = 0; j < Rows; j++) acc[j] = splat(0.0f);
    const Activation<Planes>* x = (const Activation<Planes>*)a.blocks + (size_t)row * a.groups;
    const Tile* tiles = (const Tile*)(up ? a.up_tiles : a.tiles);
    multiply<Rows, Planes>(tiles + (size_t)tile * a.groups, a.groups, x, prefetch, acc);
    const float* bias = up ? a.up_bias : a.bias;
    for (int j = 0; j < Rows; j++) store(out + j * kLanes, bias ? acc[j] + load(bias + tile * kLanes) : acc[j]);
}

template <class Tile, int Planes, int Rows>
static void gated_block(const GatedArgs& a, int group, int row, Prefetch prefetch) {
    float gate[2][Rows * kLanes], up[2][Rows * kLanes];
    for (int half = 0; half < 2; half++) {
        tile_products<Tile, Planes, Rows>(a, false, 2 * group + half, row, prefetch, gate[half]);
        tile_products<Tile, Planes, Rows>(a, true, 2 * group + half, row, prefetch, up[half]);
    }
    auto* out = (Activation<1>*)a.gated + activation_index(row, group, a.rows, a.gated_groups);
    for (int j = 0; j < Rows; j++) {
        Vec v[2];
        for (int half = 0; half < 2; half++) v[half] = silu(load(gate[half] + j * kLanes)) * load(up[half] + j * kLanes);
        quantize_group<1>(v[0], v[1], out + j);
    }
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

template <class Tile, int Planes>
static void gated_linear(const GatedArgs& a) {
#define CALL(n)                                                         \
    gated_block<Tile, Planes, n>(a, tile, row, Prefetch(pass, passes)); \
    break
    FOR_EACH_BLOCK(CALL)
#undef CALL
}

// x @ weight.T for ranges of tiles and rows: products with bias and residual, or a gated pair of products.
#pragma once

template <int Planes>
INLINE const Activation<Planes>* activations_of(const LinearArgs& a, int row) {
    return (const Activation<Planes>*)a.blocks + activation_index(row, 0, a.rows, a.groups);
}

template <class Tile, int Planes, int Rows>
static void quantized_block(const LinearArgs& a, int tile, int row, Prefetch prefetch) {
    Vec acc[Rows];
    for (int j = 0; j < Rows; j++) acc[j] = splat(0.0f);
    multiply<Rows, Planes>((const Tile*)a.tiles + (size_t)tile * a.groups, a.groups, activations_of<Planes>(a, row),
                           block_height(row, a.rows), prefetch, acc);
    for (int j = 0; j < Rows; j++) finish(a, tile, row + j, acc[j]);
}

template <class Format, int Rows>
static void plain_block(const LinearArgs& a, int tile, int row) {
    Vec acc[Rows][1];
    for (int j = 0; j < Rows; j++) acc[j][0] = splat(0.0f);
    const auto* w = (const typename Format::Type*)a.tiles + (size_t)tile * a.columns * kLanes;
    accumulate<Format, Rows, 1>(acc, a.x + row * a.x_stride, a.x_stride, w, kLanes, 0, a.columns);
    for (int j = 0; j < Rows; j++) finish(a, tile, row + j, acc[j][0]);
}

// Passes of rows within tiles within rows that stay close.
#define FOR_EACH_PASS(call)                                                                        \
    for (int near = a.row_begin; near < a.row_end; near += a.near_rows) {                          \
        int near_end = near + a.near_rows < a.row_end ? near + a.near_rows : a.row_end;            \
        int passes = (near_end - near + kPassRows - 1) / kPassRows;                                \
        for (int tile = a.tile_begin; tile < a.tile_end; tile++) {                                 \
            for (int pass = 0; pass < passes; pass++) {                                            \
                int row = near + pass * kPassRows;                                                 \
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
    const Tile* tiles = (const Tile*)(up ? a.up_tiles : a.tiles);
    multiply<Rows, Planes>(tiles + (size_t)tile * a.groups, a.groups, activations_of<Planes>(a, row),
                           block_height(row, a.rows), prefetch, acc);
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
    for (int j = 0; j < Rows; j++) {
        Vec g[2] = {load(gate[0] + j * kLanes), load(gate[1] + j * kLanes)};
        Vec u[2] = {load(up[0] + j * kLanes), load(up[1] + j * kLanes)};
        finish_gated(a, group, row + j, g, u);
    }
}

template <class Tile, int Planes>
static void quantized_linear(const LinearArgs& a) {
#define CALL(n)                                                             \
    quantized_block<Tile, Planes, n>(a, tile, row, Prefetch(pass, passes)); \
    break
    FOR_EACH_PASS(CALL)
#undef CALL
}

template <class Format>
static void plain_linear(const LinearArgs& a) {
#define CALL(n)                           \
    plain_block<Format, n>(a, tile, row); \
    break
    FOR_EACH_PASS(CALL)
#undef CALL
}

template <class Tile, int Planes>
static void gated_linear(const GatedArgs& a) {
#define CALL(n)                                                         \
    gated_block<Tile, Planes, n>(a, tile, row, Prefetch(pass, passes)); \
    break
    FOR_EACH_PASS(CALL)
#undef CALL
}

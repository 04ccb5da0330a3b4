// x @ weight.T for ranges of tiles and rows: rows quantized, products with bias and residual, or a gated pair of
// products.
#pragma once

// Integers for one group of values, see Activation. Values that are not finite make scale and sum NaN, and with them
// every product: the magnitudes are compared as integers, where infinity and NaN are the largest.
template <int Planes>
INLINE void quantize_group(Vec a, Vec b, Activation<Planes>* group) {
    const Int magnitude = splat_int(0x7fffffff);
    int32_t top = largest(greater(as_int(a) & magnitude, as_int(b) & magnitude));
    float peak = float_of_bits((uint32_t)top);
    const float limit = Planes == 2 ? 32639.0f : 127.0f;  // 32639 = 256 * 127 + 127
    bool finite = top < 0x7f800000, tiny = peak < 0x1p-100f;
    float inverse = finite && !tiny ? limit / peak : 0.0f;
    Int v[2] = {round_to_int(a * splat(inverse)), round_to_int(b * splat(inverse))};
    if (!finite) v[0] = v[1] = splat_int(0);
    for (int half = 0; half < 2; half++) {
        if (Planes == 2) {
            Int high = shift_right_signed<8>(v[half] + splat_int(128));
            Int low = greater(v[half] - shift_left<8>(high), splat_int(-127));  // AVX2 cannot take -128
            v[half] = shift_left<8>(high) + low;
            store_int8(group->planes[0] + kLanes * half, high);
            store_int8(group->planes[Planes - 1] + kLanes * half, low);
        } else {
            store_int8(group->planes[0] + kLanes * half, v[half]);
        }
    }
    int32_t total = sum(v[0] + v[1]);
    group->scale = tiny ? 0.0f : peak / limit;
    if (!finite) group->scale = float_of_bits(0x7fc00000);
    group->sum = group->scale * (float)total;
    group->offset = -128 * total;
}

// Bytes ahead of the products: into the second-level cache, and from there into the first. Found by measuring.
constexpr int kSecondLevelAhead = 10240, kFirstLevelAhead = 1280;

// Where several passes go over a tile each fetches its share of what follows, so that the memory is busy all the time.
struct Prefetch {
    int passes, wait;

    Prefetch(int pass, int passes) : passes(passes), wait(pass) {}

    __attribute__((always_inline)) void operator()(const void* p, int bytes) {
        if (wait-- > 0) return;
        wait = passes - 1;
        for (int i = 0; i < bytes; i += 64) {
            fetch_near((const char*)p + kSecondLevelAhead + i);
            __builtin_prefetch((const char*)p + kFirstLevelAhead + i);
        }
    }
};

// Adds a tile's products with some rows, group by group. How codes become integers, and integers products, is the
// matter of dot_*.hpp, which may work on parts of the outputs.
template <class Tile, int Planes, int Rows>
INLINE void multiply(const Tile* w, int groups, const Activation<Planes>* x, int height, Prefetch prefetch,
                     Vec acc[Rows]) {
    for (int k = 0; k < groups; k++, w++, x += height) {
        prefetch(w, sizeof *w);
        for (int part = 0; part < kParts; part++) {
            auto codes = unpack(*w, part);
            Part scales = load_part(w->scales(), part), minima = splat_part(0.0f);
            if constexpr (Tile::kMinima) minima = load_part(w->minima(), part);
            for (int j = 0; j < Rows; j++) {
                Part total = part_of(acc[j], part) + dot(*w, codes, x[j]) * scales * splat_part(x[j].scale);
                if (Tile::kMinima) total = total + minima * splat_part(x[j].sum);
                part_of(acc[j], part) = total;
            }
        }
    }
}

// How sixteen values of a plain format are loaded.
template <Format F>
struct Plain {
    using Type = typename TileOf<F>::Value;
    INLINE Vec lanes(const Type* p) {
        if constexpr (F == Format::f32) return load(p);
        else if constexpr (F == Format::f16) return load_f16(p);
        else return load_bf16(p);
    }
};
using F32 = Plain<Format::f32>;

// `acc` with bias and residual, as a row's outputs of one tile.
INLINE void finish(const LinearArgs& a, int tile, int row, Vec acc) {
    int column = tile * kLanes, count = a.outputs - column;
    float* out = a.out + row * a.out_stride + column;
    const float* residual = a.residual ? a.residual + row * a.residual_stride + column : nullptr;
    if (count >= kLanes) {
        if (a.bias) acc = acc + load(a.bias + column);
        if (residual) acc = acc + load(residual);
        store(out, acc);
    } else {
        if (a.bias) acc = acc + load_first(a.bias + column, count);
        if (residual) acc = acc + load_first(residual, count);
        store_first(out, acc, count);
    }
}

// A row of gate and up, 32 outputs of each, as one quantized group.
INLINE void finish_gated(const GatedArgs& a, int group, int row, const Vec gate[2], const Vec up[2]) {
    Vec v[2];
    for (int half = 0; half < 2; half++) v[half] = gate_values(a.gate, gate[half], up[half]);
    auto* out = (Activation<1>*)a.gated + activation_index(row, group, a.rows, a.gated_groups);
    quantize_group<1>(v[0], v[1], out);
}

template <int Planes>
INLINE const Activation<Planes>* activations_of(const LinearArgs& a, int row, int group = 0) {
    return (const Activation<Planes>*)a.blocks + activation_index(row, group, a.rows, a.groups);
}

template <class Tile, int Planes, int Rows>
static void quantized_block(const LinearArgs& a, int tile, int row, Prefetch prefetch) {
    Vec acc[Rows];
    for (int j = 0; j < Rows; j++) acc[j] = splat(0.0f);
    multiply<Tile, Planes, Rows>((const Tile*)a.tiles + (size_t)tile * a.groups, a.groups,
                                 activations_of<Planes>(a, row), block_height(row, a.rows), prefetch, acc);
    for (int j = 0; j < Rows; j++) finish(a, tile, row + j, acc[j]);
}

// acc[j] = acc[j] + x[j][k] * w[k] for k in order.
template <Format F, int Rows>
static void plain_block(const LinearArgs& a, int tile, int row) {
    Vec acc[Rows];
    for (int j = 0; j < Rows; j++) acc[j] = splat(0.0f);
    const auto* w = (const TileOf<F>*)a.tiles + (size_t)tile * a.columns;
    const float* x = a.x + row * a.x_stride;
    for (int k = 0; k < a.columns; k++, w++) {
        Vec lanes = Plain<F>::lanes(w->values);
        for (int j = 0; j < Rows; j++) acc[j] = acc[j] + splat(x[j * a.x_stride + k]) * lanes;
    }
    for (int j = 0; j < Rows; j++) finish(a, tile, row + j, acc[j]);
}

// Passes of rows within tiles within rows that stay close. call(n): for n rows, at most kPassRows.
#define FOR_EACH_PASS(call)                                                                        \
    for (int near = a.row_begin; near < a.row_end; near += a.near_rows) {                          \
        int near_end = near + a.near_rows < a.row_end ? near + a.near_rows : a.row_end;            \
        int passes = (near_end - near + kPassRows - 1) / kPassRows;                                \
        for (int tile = a.tile_begin; tile < a.tile_end; tile++) {                                 \
            for (int pass = 0; pass < passes; pass++) {                                            \
                int row = near + pass * kPassRows;                                                 \
                switch (near_end - row) {                                                          \
                    case 1: call(1);                                                               \
                    case 2: call(2);                                                               \
                    case 3: call(3);                                                               \
                    case 4: call(4);                                                               \
                    case 5: call(5);                                                               \
                    case 6: call(6);                                                               \
                    case 7: call(7);                                                               \
                    default: call(8);                                                              \
                }                                                                                  \
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
    multiply<Tile, Planes, Rows>(tiles + (size_t)tile * a.groups, a.groups, activations_of<Planes>(a, row),
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

template <Format F>
static void plain_linear(const LinearArgs& a) {
#define CALL(n)                      \
    plain_block<F, n>(a, tile, row); \
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

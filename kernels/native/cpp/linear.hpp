// x @ weight.T for ranges of tiles and rows: rows quantized, products with bias and residual, or a gated pair of
// products.
#pragma once

#include "tile_products.hpp"

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
    int32_t totals[2] = {sum(v[0]), sum(v[1])}, total = totals[0] + totals[1];
    group->scale = tiny ? 0.0f : peak / limit;
    if (!finite) group->scale = float_of_bits(0x7fc00000);
    group->sum = group->scale * (float)total;
    group->offset = kRaised - 128 * total;
    for (int half = 0; half < 2; half++) {
        group->sums[half] = group->scale * (float)totals[half];
        group->offsets[half] = kRaised - 128 * totals[half];
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
    if (a.factor != 1.0f) acc = acc * splat(a.factor);
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

// Rows of one tile, sums: [rows][16]. Lambdas can't do it themselves: they are not compiled for the instruction set.
__attribute__((noinline)) static void finish_rows(const LinearArgs& a, int tile, int row, int rows, const float* sums) {
    for (int j = 0; j < rows; j++) finish(a, tile, row + j, load(sums + j * kLanes));
}

// Rows of gate and up, 32 outputs of each: [2][height][16]. Each becomes one quantized group.
__attribute__((noinline)) static void finish_gated_rows(const GatedArgs& a, int group, int row, int rows, int height,
                                                        const float* gates, const float* ups) {
    const float* bias = a.bias ? a.bias + group * kGroup : nullptr;
    const float* up_bias = a.up_bias ? a.up_bias + group * kGroup : nullptr;
    for (int j = 0; j < rows; j++) {
        Vec v[2];
        for (int half = 0; half < 2; half++) {
            int at = (half * height + j) * kLanes;
            Vec gate = load(gates + at), up = load(ups + at);
            if (a.factor != 1.0f) gate = gate * splat(a.factor);
            if (a.up_factor != 1.0f) up = up * splat(a.up_factor);
            if (bias) gate = gate + load(bias + half * kLanes);
            if (up_bias) up = up + load(up_bias + half * kLanes);
            v[half] = gate_values(a.gate, gate, up);
        }
        auto* out = (Activation<1>*)a.gated + activation_index(row + j, group, a.rows, a.gated_groups);
        quantize_group<1>(v[0], v[1], out);
    }
}

template <int Planes>
INLINE const Activation<Planes>* activations_of(const LinearArgs& a, int row, int group = 0) {
    return (const Activation<Planes>*)a.blocks + activation_index(row, group, a.rows, a.groups);
}

template <int Planes>
static void packed_linear(const LinearArgs& a, const PackedProducts& products) {
    size_t bytes = products.bytes_of(a.groups);
    const int rows = a.row_end - a.row_begin;
    for (int tile = a.tile_begin; tile < a.tile_end; tile++) {
        alignas(64) float sums[kLinearRows * kLanes];
        products.of(rows)((const char*)a.tiles + bytes * (size_t)tile, a.groups, activations_of<Planes>(a, a.row_begin),
                          rows, sums);
        finish_rows(a, tile, a.row_begin, rows, sums);
    }
}

template <int Planes>
static void packed_gated_linear(const GatedArgs& a, const PackedProducts& products) {
    size_t bytes = products.bytes_of(a.groups);
    const int rows = a.row_end - a.row_begin;
    for (int group = a.tile_begin; group < a.tile_end; group++) {
        alignas(64) float sums[2][2][kLinearRows * kLanes];  // of gate and up, by halves
        for (int i = 0; i < 4; i++) {
            int tile = 2 * group + i / 2;
            const char* tiles = (const char*)(i % 2 ? a.up_tiles : a.tiles) + bytes * (size_t)tile;
            products.of(rows)(tiles, a.groups, activations_of<Planes>(a, a.row_begin), rows, sums[i % 2][i / 2]);
        }
        finish_gated_rows(a, group, a.row_begin, rows, kLinearRows, sums[0][0], sums[1][0]);
    }
}

constexpr int kPlainRows = 8;  // that share each load of a plain format's weights

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

template <Format F>
static void plain_rows(const LinearArgs& a, int tile, int row, int rows) {
    switch (rows) {
        case 1: return plain_block<F, 1>(a, tile, row);
        case 2: return plain_block<F, 2>(a, tile, row);
        case 3: return plain_block<F, 3>(a, tile, row);
        case 4: return plain_block<F, 4>(a, tile, row);
        case 5: return plain_block<F, 5>(a, tile, row);
        case 6: return plain_block<F, 6>(a, tile, row);
        case 7: return plain_block<F, 7>(a, tile, row);
        default: return plain_block<F, kPlainRows>(a, tile, row);
    }
}

template <Format F>
static void plain_linear(const LinearArgs& a) {
    for (int tile = a.tile_begin; tile < a.tile_end; tile++)
        for (int row = a.row_begin; row < a.row_end; row += kPlainRows)
            plain_rows<F>(a, tile, row, a.row_end - row < kPlainRows ? a.row_end - row : kPlainRows);
}

template <class Tile, int Planes>
static void quantized_linear(const LinearArgs& a) {
    packed_linear<Planes>(a, kProducts<Tile, Planes>);
}

template <class Tile, int Planes>
static void gated_linear(const GatedArgs& a) {
    packed_gated_linear<Planes>(a, kProducts<Tile, Planes>);
}

// All kernels of one instruction set: included once by each isa_*.cpp, inside its namespace, after the vector type and
// the tile products.
#pragma once

#include "math.hpp"
#include "linear.hpp"
#include "rows.hpp"
#include "routing.hpp"
#include "attention.hpp"
#include "sample.hpp"
#include "pack.hpp"
#include "repack.hpp"

#define LINEAR(f, ...) {quantized_linear<TileOf<Format::f>, 1>, quantized_linear<TileOf<Format::f>, 2>},
#define PLAIN_LINEAR(f, ...) {plain_linear<Format::f>, plain_linear<Format::f>},
#define GATED_LINEAR(f, ...) {gated_linear<TileOf<Format::f>, 1>, gated_linear<TileOf<Format::f>, 2>},
#define ATTENTION(name, type, scale) attention<type>,

static const Kernels kKernels = {
    ISA_NAME,
    add_noise,
    {PACKED_FORMATS(LINEAR) PLAIN_FORMATS(PLAIN_LINEAR)},
    {PACKED_FORMATS(GATED_LINEAR)},
    {quantize_row<1>, quantize_row<2>},
    read,
    round_to_half,
    round_to_int8,
    rms_norm,
    gated,
    add,
    add_scaled,
    route,
    scale,
    cap,
    center,
    {rotate_half, rotate_interleaved},
    {CACHE_FORMATS(ATTENTION)},
    join_spans,
    block_maxima,
    find,
    mass,
    draw,
    score_weights,
    widen,
    pack_q8,
    pack_q4,
    pack_nf4,
    repack,
};

#undef LINEAR
#undef PLAIN_LINEAR
#undef GATED_LINEAR
#undef ATTENTION

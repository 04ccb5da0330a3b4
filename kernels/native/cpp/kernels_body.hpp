// All kernels of one instruction set: included once by each isa_*.cpp, inside its namespace, after the vector type and
// the tile products.
#pragma once

#include "math.hpp"
#include "accumulate.hpp"
#include "quantize.hpp"
#include "rows.hpp"
#include "finish.hpp"
#include "linear.hpp"
#include "attention.hpp"
#include "sample.hpp"

static const Kernels kKernels = {
    ISA_NAME,
    {
        {quantized_linear<Q4Tile, 1>, quantized_linear<Q4Tile, 2>},
        {quantized_linear<Q8Tile, 1>, quantized_linear<Q8Tile, 2>},
        {plain_linear<F32>, plain_linear<F32>},
        {plain_linear<F16>, plain_linear<F16>},
        {plain_linear<BF16>, plain_linear<BF16>},
    },
    {
        {gated_linear<Q4Tile, 1>, gated_linear<Q4Tile, 2>},
        {gated_linear<Q8Tile, 1>, gated_linear<Q8Tile, 2>},
    },
    {quantize_row<1>, quantize_row<2>},
    read,
    round_to_half,
    rms_norm,
    gated,
    add,
    scale,
    cap,
    {rotate_half, rotate_interleaved},
    {attention<F32>, attention<F16>},
    join_spans,
    block_maxima,
    find,
    mass,
    draw,
    score_weights,
    add_noise,
};

// What becomes of finished products: bias, residual, activation.
#pragma once

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

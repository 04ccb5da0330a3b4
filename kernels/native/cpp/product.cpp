#include "product.hpp"

#include <algorithm>

namespace native {
namespace {

void set_rows(const Matrix& matrix, const Product& p, LinearArgs& args) {
    args.columns = matrix.columns();
    args.groups = groups_of(matrix.columns());
    args.rows = p.count;
    args.row_begin = p.begin;
    args.row_end = std::min(p.begin + kLinearRows, p.count);
    args.blocks = p.blocks;
}

}  // namespace

bool is_gated_pair(const Matrix& matrix) {
    const std::vector<Segment>& s = matrix.segments();
    return s.size() == 2 && s[0].format == s[1].format && (int)s[0].format < kPackedFormats && s[0].rows == s[1].rows &&
           s[0].rows % kGroup == 0;
}

void product(const Kernels& kernels, const Matrix& matrix, const Product& p, int first, int last) {
    LinearArgs args;
    set_rows(matrix, p, args);
    args.x = p.x.data;
    args.x_stride = p.x.stride;
    args.residual_stride = p.residual.stride;
    args.out_stride = p.out.stride;
    for (const Segment& segment : matrix.segments()) {
        args.tile_begin = std::max(first - segment.tile_first, 0);
        args.tile_end = std::min(last - segment.tile_first, segment.tiles);
        if (args.tile_begin >= args.tile_end) continue;
        args.tiles = segment.data;
        args.factor = segment.factor;
        args.outputs = segment.rows;
        args.bias = p.bias ? p.bias + segment.first : nullptr;
        args.residual = p.residual.data ? p.residual.data + segment.first : nullptr;
        args.out = p.out.data + segment.first;
        kernels.linear[(int)segment.format][p.planes - 1](args);
    }
}

void gated_product(const Kernels& kernels, const Matrix& matrix, const Product& p, Gate gate, void* gated, int groups,
                   int first, int last) {
    const Segment &gates = matrix.segments()[0], &ups = matrix.segments()[1];
    GatedArgs args;
    set_rows(matrix, p, args);
    args.tile_begin = first;
    args.tile_end = last;
    args.tiles = gates.data;
    args.up_tiles = ups.data;
    args.factor = gates.factor;
    args.up_factor = ups.factor;
    args.bias = p.bias;
    args.up_bias = p.bias ? p.bias + gates.rows : nullptr;
    args.gate = gate;
    args.gated = gated;
    args.gated_groups = groups;
    kernels.gated_linear[(int)gates.format][p.planes - 1](args);
}

size_t bytes_of(const Matrix& matrix) {
    size_t bytes = 0;
    for (const Segment& segment : matrix.segments()) bytes += segment.tile_bytes * (size_t)segment.tiles;
    return bytes;
}

}  // namespace native

// Products of some rows with a range of a matrix's tiles, whatever formats its blocks of rows have.
#pragma once

#include "kernels.hpp"
#include "matrix.hpp"

namespace native {

constexpr size_t kTaskBytes = 49152;  // of weights: in smaller tasks claiming costs more than it balances

// Rows of floats.
struct Rows {
    float* data = nullptr;
    ptrdiff_t stride = 0;
};

// Where the rows of a product stand, and where what comes of them goes. `count` rows in all, of which a call takes
// kLinearRows from `begin` on.
struct Product {
    int count = 0, begin = 0;
    const void* blocks = nullptr;  // quantized, in as many planes
    int planes = 1;
    Rows x, residual, out;         // residual may be null
    const float* bias = nullptr;   // of all outputs, or null
};

// Whether a matrix is a gate above an up projection that `gated_product` takes.
bool is_gated_pair(const Matrix& matrix);

// Tiles first to last, counted over all blocks of rows.
void product(const Kernels& kernels, const Matrix& matrix, const Product& p, int first, int last);

// Of a gated pair the groups first to last of 32 outputs: gated and quantized in one plane, into rows of `groups`.
void gated_product(const Kernels& kernels, const Matrix& matrix, const Product& p, Gate gate, void* gated, int groups,
                   int first, int last);

size_t bytes_of(const Matrix& matrix);

}  // namespace native

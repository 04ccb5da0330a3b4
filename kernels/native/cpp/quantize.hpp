// Rows of float values to a packed format, on the team. kernels/quantize.py does the same in numpy, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats.hpp"

namespace native {

struct Kernels;

constexpr float kLargestHalf = 65504.0f;
constexpr float kCoarse = 1.25f;  // times the step that a row's values ask for, its float16 scale may be

// What is kept of a group to judge its row by. peak: its largest magnitude, infinite where the format can't hold it;
// span: from its least to its largest value.
struct GroupFacts {
    float peak, span;
};

// Where packed groups go: one behind the other.
struct PackedArrays {
    uint8_t* codes;
    uint16_t* scales;
    uint16_t* minima;  // null where the format has none
    GroupFacts* facts;
};

// A matrix of plain values, and where it goes: canonical arrays (kernels/weights.py).
struct Quantizing {
    int64_t from, to;   // formats
    int64_t rows, columns;
    const uint8_t* values;
    int64_t stride;     // bytes from one row to the next
    uint8_t* codes;
    uint8_t* scales;
    uint8_t* minima;
    float* peaks;       // [rows] largest magnitude; infinite: the row can't be held
    uint8_t* coarse;    // [rows] 1: float16 scales are too coarse for its values
};

// False: there is no kernel for these formats.
bool quantize(const Kernels& kernels, const Quantizing& matrix, int threads);

}  // namespace native

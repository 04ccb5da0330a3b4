// Rows of float values to a packed format, on the team. kernels/quantize.py does the same in numpy, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats.hpp"

namespace native {

struct Kernels;

// Halfway from each of the sixteen values of nf4 to the next (kernels/nf4.py).
#define NF4_BOUNDS \
    -0.8480963706970215f, -0.6106328964233398f, -0.4599952697753906f, -0.33967941999435425f, \
    -0.23460739850997925f, -0.13791173696517944f, -0.045525018125772476f, 0.03979014977812767f, \
    0.120255246758461f, 0.2035212516784668f, 0.2920137643814087f, 0.3893125355243683f, 0.5016634464263916f, \
    0.6427869200706482f, 0.8614784479141235f

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

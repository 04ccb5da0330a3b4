#include "stored.hpp"

#include <cmath>
#include <type_traits>

namespace native {
namespace {

constexpr float kLargest = 65504.0f;  // of float16
constexpr float kCoarse = 1.25f;      // as in kernels/quantize.py

template <Stored Type>
using Is = std::integral_constant<Stored, Type>;

template <int Values, int Bytes>
struct Block {};

float half_at(const uint8_t* p) {
    uint16_t half;
    memcpy(&half, p, 2);
    return float_of_half(half);
}

// Numbers of a few bits in bytes that hold a run of first ones, then of second ones, and so on.
template <int Bits, int Run, int Count>
struct Numbers {
    uint8_t v[Count];

    explicit Numbers(const uint8_t* p) {
        uint8_t* out = v;
        for (int done = 0; done < Count; p += Run)
            for (int shift = 0; shift < 8; shift += Bits, out += Run, done += Run)
                for (int i = 0; i < Run; i++) out[i] = (uint8_t)(p[i] >> shift & ((1 << Bits) - 1));
    }
    int operator[](int i) const { return v[i]; }
};

// The fifth bits of 32 codes, as 0 or 16.
struct FifthBits {
    uint8_t v[32];

    explicit FifthBits(const uint8_t* p) {
        for (int byte = 0; byte < 4; byte++)
            for (int i = 0; i < 8; i++) v[8 * byte + i] = p[byte] & 1 << i ? 16 : 0;
    }
    int operator[](int i) const { return v[i]; }
};

// Scales and minima of 6 bits of the 8 groups of a Q4_K or Q5_K block (get_scale_min_k4 in ggml-quants.c).
struct SixBits {
    uint8_t scales[8], minima[8];

    explicit SixBits(const uint8_t* p) {
        for (int i = 0; i < 4; i++) {
            scales[i] = p[i] & 63;
            minima[i] = p[4 + i] & 63;
            scales[4 + i] = (uint8_t)((p[8 + i] & 15) | p[i] >> 6 << 4);
            minima[4 + i] = (uint8_t)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
        }
    }
};

// The values of a block, by the operations of the gguf package in their order.

void values_of(Is<Stored::Q5_1>, const uint8_t* b, float* out) {
    float d = half_at(b), m = half_at(b + 2);
    Numbers<4, 16, 32> low(b + 8);
    FifthBits high(b + 4);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(low[i] | high[i]) + m;
}

void values_of(Is<Stored::Q2_K>, const uint8_t* b, float* out) {
    float d = half_at(b + 80), least = half_at(b + 82);
    Numbers<2, 32, 256> codes(b + 16);
    for (int g = 0; g < 16; g++) {
        float scale = d * (float)(b[g] & 15), minimum = least * (float)(b[g] >> 4);
        for (int i = 16 * g; i < 16 * g + 16; i++) out[i] = scale * (float)codes[i] - minimum;
    }
}

void values_of(Is<Stored::Q3_K>, const uint8_t* b, float* out) {
    float d = half_at(b + 108);
    const uint8_t* packed = b + 96;
    Numbers<2, 32, 256> codes(b + 32);
    Numbers<1, 32, 256> kept(b);
    for (int g = 0; g < 16; g++) {
        int low = packed[g % 8] >> g / 8 * 4 & 15, high = packed[8 + g % 4] >> g / 4 * 2 & 3;
        float scale = d * (float)((low | high << 4) - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) out[i] = scale * (float)(codes[i] - 4 + 4 * kept[i]);
    }
}

void values_of(Is<Stored::Q5_K>, const uint8_t* b, float* out) {
    float d = half_at(b), least = half_at(b + 2);
    SixBits six(b + 4);
    Numbers<4, 32, 256> low(b + 48);
    Numbers<1, 32, 256> high(b + 16);
    for (int g = 0; g < 8; g++) {
        float scale = d * (float)six.scales[g], minimum = least * (float)six.minima[g];
        for (int i = 32 * g; i < 32 * g + 32; i++)
            out[i] = scale * (float)(low[i] | high[i] << 4) - minimum;
    }
}

void values_of(Is<Stored::Q6_K>, const uint8_t* b, float* out) {
    float d = half_at(b + 208);
    Numbers<4, 64, 256> low(b);
    Numbers<2, 32, 256> high(b + 128);
    for (int g = 0; g < 16; g++) {
        float scale = d * (float)(int8_t)b[192 + g];
        for (int i = 16 * g; i < 16 * g + 16; i++) out[i] = scale * (float)((low[i] | high[i] << 4) - 32);
    }
}

constexpr int8_t kSixteen[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void values_of(Is<Stored::IQ4_NL>, const uint8_t* b, float* out) {
    float d = half_at(b);
    Numbers<4, 16, 32> codes(b + 2);
    for (int i = 0; i < 32; i++) out[i] = d * (float)kSixteen[codes[i]];
}

void values_of(Is<Stored::IQ4_XS>, const uint8_t* b, float* out) {
    float d = half_at(b);
    int highs = b[2] | b[3] << 8;
    Numbers<4, 16, 256> codes(b + 8);
    for (int g = 0; g < 8; g++) {
        int low = b[4 + g / 2] >> g % 2 * 4 & 15, high = highs >> 2 * g & 3;
        float scale = d * (float)((low | high << 4) - 32);
        for (int i = 32 * g; i < 32 * g + 32; i++) out[i] = scale * (float)kSixteen[codes[i]];
    }
}

// Five digits to the base 3 a byte, as the upper parts of a fraction.
void values_of(Is<Stored::TQ1_0>, const uint8_t* b, float* out) {
    constexpr int kPowers[] = {1, 3, 9, 27, 81};
    float d = half_at(b + 52);
    auto digit = [&](int byte, int power) { return d * (float)((b[byte] * kPowers[power] % 256 * 3 >> 8) - 1); };
    for (int i = 0; i < 160; i++) out[i] = digit(i % 32, i / 32);
    for (int i = 0; i < 80; i++) out[160 + i] = digit(32 + i % 16, i / 16);
    for (int i = 0; i < 16; i++) out[240 + i] = digit(48 + i % 4, i / 4);
}

void values_of(Is<Stored::TQ2_0>, const uint8_t* b, float* out) {
    float d = half_at(b + 64);
    Numbers<2, 32, 256> codes(b);
    for (int i = 0; i < 256; i++) out[i] = d * (float)(codes[i] - 1);
}

void values_of(Is<Stored::MXFP4>, const uint8_t* b, float* out) {
    constexpr int8_t kValues[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
    float d = float_of_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
    Numbers<4, 16, 32> codes(b + 1);
    for (int i = 0; i < 32; i++) out[i] = d * (float)kValues[codes[i]];
}

// q8 with the rounding of kernels/quantize.py, group by group.
class Quantizer {
public:
    bool take(const float* values, uint8_t* codes, uint16_t* half) {
        int32_t top = 0;  // magnitudes compared as integers, where infinity and NaN are the largest
        for (int i = 0; i < kGroup; i++) {
            int32_t magnitude = (int32_t)(bits_of_float(values[i]) & 0x7fffffffu);
            top = top < magnitude ? magnitude : top;
        }
        float span = float_of_bits((uint32_t)top), exact = span / 127.0f;
        if (top >= 0x7f800000 || exact > kLargest) return false;
        *half = half_of_float(exact);
        if (span > float_of_half(*half) * 127.5f) ++*half;  // the next larger
        float scale = float_of_half(*half), step = *half ? scale : 1.0f;
        for (int i = 0; i < kGroup; i++) {
            constexpr float kShift = 0x1.8p23f;  // makes the sum round to an integer
            int rounded = (int)(values[i] / step + kShift - kShift);
            rounded = rounded < -127 ? -127 : rounded;
            codes[i] = (uint8_t)(rounded > 127 ? 127 : rounded);
        }
        largest_ = largest_ < span ? span : largest_;
        step_ = step_ < scale ? scale : step_;
        return true;
    }

    // Whether float16 scales are fine enough for the values of the row.
    bool fine() const { return largest_ == 0 || step_ <= largest_ / 127.0f * kCoarse; }

private:
    float largest_ = 0, step_ = 0;
};

template <class Type, int Values, int Bytes>
bool take(Type type, Block<Values, Bytes>, const uint8_t* blocks, int columns, CanonicalRow& row) {
    Quantizer quantizer;
    float values[Values];
    for (int first = 0; first < columns; first += Values, blocks += Bytes) {
        values_of(type, blocks, values);
        for (int i = 0; i < Values; i += kGroup) {
            int group = (first + i) / kGroup;
            if (!quantizer.take(values + i, &row.codes[(size_t)group * kGroup], &row.scales[(size_t)group])) return false;
        }
    }
    return quantizer.fine();
}

// Value = scale * (code - 8).
bool take(Is<Stored::Q4_0>, Block<32, 18>, const uint8_t* b, int columns, CanonicalRow& row) {
    for (size_t g = 0; g < (size_t)columns / 32; g++, b += 18) {
        memcpy(&row.scales[g], b, 2);
        row.minima[g] = half_of_float(float_of_half(row.scales[g]) * -8.0f);
        if ((row.minima[g] & 0x7c00) == 0x7c00) return false;
        memcpy(&row.codes[16 * g], b + 2, 16);
    }
    return true;
}

// Value = scale * (code - 16).
bool take(Is<Stored::Q5_0>, Block<32, 22>, const uint8_t* b, int columns, CanonicalRow& row) {
    for (size_t g = 0; g < (size_t)columns / 32; g++, b += 22) {
        memcpy(&row.scales[g], b, 2);
        Numbers<4, 16, 32> low(b + 6);
        FifthBits high(b + 2);
        for (size_t i = 0; i < 32; i++) row.codes[32 * g + i] = (uint8_t)((low[i] | high[i]) - 16);
    }
    return true;
}

// Value = scale * code - minimum, both rounded to float16.
bool take(Is<Stored::Q4_K>, Block<256, 144>, const uint8_t* b, int columns, CanonicalRow& row) {
    for (size_t block = 0; block < (size_t)columns / 256; block++, b += 144) {
        float d = half_at(b), least = -half_at(b + 2);
        SixBits six(b + 4);
        for (int i = 0; i < 8; i++) {
            float scale = (float)six.scales[i] * d, minimum = (float)six.minima[i] * least;
            if (!(fabsf(scale) <= kLargest) || !(fabsf(minimum) <= kLargest)) return false;
            size_t g = 8 * block + i;
            row.scales[g] = half_of_float(scale);
            row.minima[g] = half_of_float(minimum);
            const uint8_t* pairs = b + 16 + i / 2 * 32;
            for (int j = 0; j < 16; j++) {
                int first = pairs[j] >> i % 2 * 4 & 15, second = pairs[j + 16] >> i % 2 * 4 & 15;
                row.codes[16 * g + j] = (uint8_t)(first | second << 4);
            }
        }
    }
    return true;
}

}  // namespace

CanonicalRow::CanonicalRow(int columns)
    : codes((size_t)groups_of(columns) * kGroup), scales((size_t)groups_of(columns)), minima(scales.size()) {}

bool convert_row(Stored type, const uint8_t* blocks, int columns, CanonicalRow& row) {
#define CASE(name, values, bytes, format) \
    case Stored::name: return take(Is<Stored::name>(), Block<values, bytes>(), blocks, columns, row);
    switch (type) {
        STORED_TYPES(CASE)
        case Stored::none: break;
    }
#undef CASE
    return false;
}

}  // namespace native

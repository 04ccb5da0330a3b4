// Conversions of single float16 and bfloat16 values with the bits that hardware gives (round to nearest even).
#pragma once

#include <cstdint>
#include <cstring>

namespace native {

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float float_of_bf16(uint16_t bits) { return float_of_bits((uint32_t)bits << 16); }

static inline float float_of_half(uint16_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;  // zero and subnormals: exact
    return float_of_bits(sign | bits_of_float(magnitude));
}

static inline uint16_t half_of_float(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // 65520 and more round to infinity
    if (magnitude < 0x38800000u) {                                     // below 2^-14: subnormal, in units of 2^-24
        float units = float_of_bits(magnitude) * 0x1p24f + 0x1p23f;    // the sum rounds to an integer
        return (uint16_t)(sign | (bits_of_float(units) & 0x7ffu));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace native

// Products of one weight tile with a row, for any machine: vectors of eight int16 lanes, two outputs by four inputs,
// which compilers map to what the target has.
#pragma once

typedef int16_t Short8 __attribute__((vector_size(16)));
typedef int32_t Int8 __attribute__((vector_size(32)));

constexpr int kParts = 1;
using Part = Vec;
INLINE Part& part_of(Vec& acc, int) { return acc; }
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part load_part(const uint16_t* halves, int) { return load_f16(halves); }

// The integers of a tile in the order of its codes.
struct Codes {
    alignas(16) int16_t v[512];
};

template <class Tile>
INLINE Codes unpack(const Tile& w, int) {
    Codes c;
    for (int i = 0; i < 256; i++) c.v[i] = (int16_t)(w.code(i) + Tile::kLow);
    for (int i = 256; i < 512; i++) c.v[i] = (int16_t)(w.code(i) + Tile::kLow);
    return c;
}

// Eight products of 4-bit codes stay below 2^15, so they are summed as they are; those of more bits are not.
INLINE void add_products(Short8& sum, Short8 products) { sum += products; }
INLINE void add_products(Int8& sum, Short8 products) { sum += __builtin_convertvector(products, Int8); }

template <class Sum>
__attribute__((noinline)) static void dot_group(const Codes& codes, const int8_t* x, int32_t dots[kLanes]) {
    const int16_t* pair = codes.v;
    Sum sums[8] = {};
    for (int i = 0; i < 8; i++, x += 4) {
        Short8 inputs = {x[0], x[1], x[2], x[3], x[0], x[1], x[2], x[3]};
        for (int n = 0; n < 8; n++, pair += 8) {
            Short8 integers;
            memcpy(&integers, pair, sizeof integers);
            add_products(sums[n], integers * inputs);
        }
    }
    for (int n = 0; n < kLanes; n++) {
        const Sum& s = sums[n / 2];
        int t = n % 2 * 4;
        dots[n] = s[t] + s[t + 1] + s[t + 2] + s[t + 3];
    }
}

template <class Tile, int Planes>
INLINE Part dot(const Tile&, const Codes& codes, const Activation<Planes>& x) {
    using Sum = std::conditional_t<Tile::kBits <= 4, Short8, Int8>;
    int32_t dots[kLanes], low[kLanes];
    dot_group<Sum>(codes, x.planes[0], dots);
    if (Planes == 2) {
        dot_group<Sum>(codes, x.planes[Planes - 1], low);
        for (int n = 0; n < kLanes; n++) dots[n] = dots[n] * 256 + low[n];
    }
    return to_float(load_int(dots));
}

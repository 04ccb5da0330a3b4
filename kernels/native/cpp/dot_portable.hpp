// Products of one group of a weight tile with a row, for any machine: vectors of eight int16 lanes, two outputs by four inputs,
// which compilers map to what the target has.
#pragma once

typedef int16_t Short8 __attribute__((vector_size(16)));
typedef int32_t Int8 __attribute__((vector_size(32)));

constexpr int kParts = 1;     // of a tile's outputs, one after the other
constexpr int kTogether = 1;  // rows whose products are made side by side
constexpr int kFew = 1;       // rows up to which sums stay in registers
constexpr bool kCanRaise = false;  // `fma` may be slow
using Part = Vec;
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part load_part(const uint16_t* halves, int) { return load_f16(halves); }
INLINE Part load_part(const float* p, int) { return load(p); }
INLINE Part load_part(const uint8_t* bytes, int) { return to_float(load_bytes(bytes)); }
INLINE void store_part(float* p, Part a) { store(p, a); }
INLINE Part fma_part(Part a, Part b, Part c) { return fma(a, b, c); }

// What the codes of a group stand for, in their order.
struct Codes {
    alignas(16) int16_t v[512];
};

// Fields of B bits, from bit `At` on.
template <int B, int At>
INLINE void add_plane(const uint8_t* plane, int16_t* out) {
    for (int first = 0; first < 8 / B; first++, out += 64 * B)
        for (int i = 0; i < 64 * B; i++) out[i] = (int16_t)(out[i] | (plane[i] >> first * B & ((1 << B) - 1)) << At);
}

template <class Tile>
INLINE Codes unpack(const Tile& w, int group, int) {
    Codes c = {};
    add_plane<Tile::kLowBits, 0>(w.codes[group], c.v);
    if constexpr (Tile::kHighBits > 0)
        add_plane<Tile::kHighBits, Tile::kLowBits>(w.codes[group] + 64 * Tile::kLowBits, c.v);
    if constexpr (Tile::kTable) {
        for (int16_t& v : c.v) v = Tile::table()[v];
    } else {
        for (int16_t& v : c.v) v = (int16_t)(v + Tile::kLow);
    }
    return c;
}

// Products of small integers are summed as they are while they stay below 2^15; others are not.
INLINE void add_products(Short8& sum, Short8 products) { sum += products; }
INLINE void add_products(Int8& sum, Short8 products) { sum += __builtin_convertvector(products, Int8); }

// Of the inputs 4 First to 4 (First + Count).
template <class Sum, int First, int Count>
__attribute__((noinline)) static void dot_group(const Codes& codes, const int8_t* x, int32_t dots[kLanes]) {
    const int16_t* pair = codes.v + 64 * First;
    Sum sums[8] = {};
    x += 4 * First;
    for (int i = 0; i < Count; i++, x += 4) {
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

template <class Tile, int First, int Count, int Planes, int Rows>
INLINE void dots(const Codes& codes, const Activation<Planes>* x, Part* out) {
    static_assert(Rows == 1, "rows go one after the other");
    constexpr int below = -Tile::kLow, above = Tile::most() + Tile::kLow;
    using Sum = std::conditional_t<(below > above ? below : above) * 127 * Count < 32768, Short8, Int8>;
    int32_t dots[kLanes], low[kLanes];
    dot_group<Sum, First, Count>(codes, x->planes[0], dots);
    if (Planes == 2) {
        dot_group<Sum, First, Count>(codes, x->planes[Planes - 1], low);
        for (int n = 0; n < kLanes; n++) dots[n] = dots[n] * 256 + low[n];
    }
    *out = to_float(load_int(dots));
}

#include "stored.hpp"

#include <cmath>
#include <type_traits>

namespace native {
namespace {

constexpr float kLargest = 65504.0f;  // of float16
constexpr float kCoarse = 1.25f;      // as in kernels/quantize.py

template <Stored Type>
using Is = std::integral_constant<Stored, Type>;

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

// A block as its tiles keep it.
struct Block {
    uint8_t codes[256];
    uint16_t halves[2] = {0, 0};  // of a super-block: what scales and minima are multiples of
    uint32_t scales[2][16];       // scales, then minima

    void set_nibbles(const uint8_t* p) {
        for (int i = 0; i < 16; i++) codes[i] = p[i] & 15, codes[16 + i] = p[i] >> 4;
    }
    void set_halves(const uint8_t* scale, const uint8_t* minimum) {
        memcpy(&halves[0], scale, 2);
        memcpy(&halves[1], minimum, 2);
        halves[1] ^= 0x8000;  // files subtract what is added here
    }
    void set_scale(int which, const uint8_t* half) {
        uint16_t bits;
        memcpy(&bits, half, 2);
        scales[which][0] = bits;
    }
};

void read(Is<Stored::Q4_0>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    block.set_nibbles(b + 2);
}

void read(Is<Stored::Q4_1>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    block.set_scale(1, b + 2);
    block.set_nibbles(b + 4);
}

void read(Is<Stored::Q5_0>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    block.set_nibbles(b + 6);
    FifthBits high(b + 2);
    for (int i = 0; i < 32; i++) block.codes[i] |= high.v[i];
}

void read(Is<Stored::Q5_1>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    block.set_scale(1, b + 2);
    block.set_nibbles(b + 8);
    FifthBits high(b + 4);
    for (int i = 0; i < 32; i++) block.codes[i] |= high.v[i];
}

void read(Is<Stored::Q8_0>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    for (int i = 0; i < 32; i++) block.codes[i] = b[2 + i] ^ 0x80;
}

void read_k(const uint8_t* b, const uint8_t* nibbles, Block& block) {
    block.set_halves(b, b + 2);
    SixBits six(b + 4);
    for (int g = 0; g < 8; g++) block.scales[0][g] = six.scales[g], block.scales[1][g] = six.minima[g];
    Numbers<4, 32, 256> low(nibbles);
    memcpy(block.codes, low.v, 256);
}

void read(Is<Stored::Q4_K>, const uint8_t* b, Block& block) { read_k(b, b + 16, block); }

void read(Is<Stored::Q5_K>, const uint8_t* b, Block& block) {
    read_k(b, b + 48, block);
    Numbers<1, 32, 256> high(b + 16);
    for (int i = 0; i < 256; i++) block.codes[i] |= (uint8_t)(high.v[i] << 4);
}

void read(Is<Stored::Q6_K>, const uint8_t* b, Block& block) {
    memcpy(&block.halves[0], b + 208, 2);
    for (int g = 0; g < 16; g++) block.scales[0][g] = b[192 + g] ^ 0x80;
    Numbers<4, 64, 256> low(b);
    Numbers<2, 32, 256> high(b + 128);
    for (int i = 0; i < 256; i++) block.codes[i] = (uint8_t)(low.v[i] | high.v[i] << 4);
}

void read(Is<Stored::IQ4_NL>, const uint8_t* b, Block& block) {
    block.set_scale(0, b);
    block.set_nibbles(b + 2);
}

void read(Is<Stored::IQ4_XS>, const uint8_t* b, Block& block) {
    memcpy(&block.halves[0], b, 2);
    unsigned highs = b[2] | (unsigned)b[3] << 8;
    for (int g = 0; g < 8; g++) block.scales[0][g] = (b[4 + g / 2] >> g % 2 * 4 & 15) | (highs >> 2 * g & 3) << 4;
    Numbers<4, 16, 256> codes(b + 8);
    memcpy(block.codes, codes.v, 256);
}

void read(Is<Stored::MXFP4>, const uint8_t* b, Block& block) {
    block.scales[0][0] = b[0];
    block.set_nibbles(b + 1);
}

// Whether all values of a block are finite: those of MXFP4 reach 6 times its power of two.
template <class Tile>
bool is_finite(const Block& block) {
    constexpr uint32_t top = 0x7c00;
    bool finite = true;
    for (int which = 0; which < Tile::kNumbers; which++) {
        if constexpr (Tile::kKind.block > 0) finite &= (block.halves[which] & top) != top;
        if constexpr (Tile::kScales == Scales::f16) finite &= (block.scales[which][0] & top) != top;
        if constexpr (Tile::kScales == Scales::e8m0) finite &= block.scales[which][0] <= 252;
    }
    return finite;
}

// A block lies in one tile or several.
template <class Tile, int Values>
void put(const Block& block, Tile* tile, int lane) {
    for (int g = 0; g < Values / kGroup; g++)
        tile[g / Tile::kGroups].set_codes(g % Tile::kGroups, lane, block.codes + g * kGroup);
    for (int which = 0; which < Tile::kNumbers; which++) {
        if constexpr (Tile::kKind.block > 0) tile->set_half(which, lane, block.halves[which]);
        for (int run = 0; run < Values / Tile::kRun; run++)
            tile[run / Tile::kRuns].set_scale(which, run % Tile::kRuns, lane, block.scales[which][run]);
    }
}

template <Stored Type, class Tile, int Values, int Bytes>
bool fill(const uint8_t* blocks, int columns, Tile* tiles, int lane) {
    static_assert(Values % Tile::kColumns == 0, "blocks are whole tiles");
    bool finite = true;
    Block block;
    for (int first = 0; first < columns; first += Values, blocks += Bytes, tiles += Values / Tile::kColumns) {
        read(Is<Type>(), blocks, block);
        finite &= is_finite<Tile>(block);
        put<Tile, Values>(block, tiles, lane);
    }
    return finite;
}

// The values of a block of a type without a format of its own, by the operations of the gguf package in their order.

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
            codes[i] = (uint8_t)((rounded > 127 ? 127 : rounded) + 128);
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

template <Stored Type, int Values, int Bytes>
bool quantize(const uint8_t* blocks, int columns, TileOf<Format::q8>* tile, int lane) {
    Quantizer quantizer;
    float values[Values];
    for (int first = 0; first < columns; first += Values, blocks += Bytes) {
        values_of(Is<Type>(), blocks, values);
        for (int i = 0; i < Values; i += kGroup, tile++) {
            uint8_t codes[kGroup];
            uint16_t scale;
            if (!quantizer.take(values + i, codes, &scale)) return false;
            tile->set_codes(0, lane, codes);
            tile->set_scale(0, 0, lane, scale);
        }
    }
    return quantizer.fine();
}

template <Stored Type>
constexpr bool kAnew = Type == Stored::Q2_K || Type == Stored::Q3_K || Type == Stored::TQ1_0 || Type == Stored::TQ2_0;

}  // namespace

bool fill_from_blocks(Stored type, const uint8_t* blocks, int columns, void* tiles, int lane) {
    auto by = [&](auto is, auto* tile, auto values, auto bytes) {
        constexpr Stored kType = decltype(is)::value;
        constexpr int kValues = decltype(values)::value, kBytes = decltype(bytes)::value;
        using Tile = std::remove_pointer_t<decltype(tile)>;
        if constexpr (kAnew<kType>) return quantize<kType, kValues, kBytes>(blocks, columns, (Tile*)tiles, lane);
        else return fill<kType, Tile, kValues, kBytes>(blocks, columns, (Tile*)tiles, lane);
    };
#define CASE(name, values, bytes, format)                                              \
    case Stored::name:                                                                 \
        return by(Is<Stored::name>(), (TileOf<Format::format>*)nullptr, std::integral_constant<int, values>(), \
                  std::integral_constant<int, bytes>());
    switch (type) {
        STORED_TYPES(CASE)
        case Stored::none: break;
    }
#undef CASE
    return false;
}

}  // namespace native

#include "stored.hpp"

#include <type_traits>

namespace native {
namespace {

template <Stored Type>
using Is = std::integral_constant<Stored, Type>;

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
};

// The fifth bits of 32 codes, as 0 or 16.
struct FifthBits {
    uint8_t v[32];

    explicit FifthBits(const uint8_t* p) {
        for (int byte = 0; byte < 4; byte++) {
            // Bit i of eight copies goes to the top of copy i: what is added there carries exactly where it is set.
            uint64_t eight = (p[byte] * 0x0101010101010101u) & 0x8040201008040201u;
            eight = ((eight + 0x00406070787c7e7fu) & 0x8080808080808080u) >> 3;
            memcpy(v + 8 * byte, &eight, 8);
        }
    }
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

void read(Is<Stored::Q3_K>, const uint8_t* b, Block& block) {
    memcpy(&block.halves[0], b + 108, 2);
    const uint8_t* packed = b + 96;
    for (int g = 0; g < 16; g++)
        block.scales[0][g] = (packed[g % 8] >> g / 8 * 4 & 15) | (packed[8 + g % 4] >> g / 4 * 2 & 3) << 4;
    Numbers<2, 32, 256> low(b + 32);
    Numbers<1, 32, 256> high(b);
    for (int i = 0; i < 256; i++) block.codes[i] = (uint8_t)(low.v[i] | high.v[i] << 2);
}

void read(Is<Stored::Q2_K>, const uint8_t* b, Block& block) {
    block.set_halves(b + 80, b + 82);
    for (int g = 0; g < 16; g++) block.scales[0][g] = b[g] & 15, block.scales[1][g] = b[g] >> 4;
    Numbers<2, 32, 256> codes(b + 16);
    memcpy(block.codes, codes.v, 256);
}

// Five digits to the base 3 a byte, as the upper parts of a fraction.
void read(Is<Stored::TQ1_0>, const uint8_t* b, Block& block) {
    constexpr int kPowers[] = {1, 3, 9, 27, 81};
    block.set_scale(0, b + 52);
    auto digit = [&](int byte, int power) { return (uint8_t)(b[byte] * kPowers[power] % 256 * 3 >> 8); };
    for (int i = 0; i < 160; i++) block.codes[i] = digit(i % 32, i / 32);
    for (int i = 0; i < 80; i++) block.codes[160 + i] = digit(32 + i % 16, i / 16);
    for (int i = 0; i < 16; i++) block.codes[240 + i] = digit(48 + i % 4, i / 4);
}

void read(Is<Stored::TQ2_0>, const uint8_t* b, Block& block) {
    block.set_scale(0, b + 64);
    Numbers<2, 32, 256> codes(b);
    memcpy(block.codes, codes.v, 256);
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

// A scale has no sign here, and what would be NaN in OCP MX is 0 (ggml_ue4m3_to_fp32 in ggml-impl.h).
void read(Is<Stored::NVFP4>, const uint8_t* b, Block& block) {
    for (int g = 0; g < 4; g++) block.scales[0][g] = b[g] == 0x7f ? 0 : b[g] & 0x7f;
    Numbers<4, 8, 64> codes(b + 4);
    memcpy(block.codes, codes.v, 64);
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

}  // namespace

bool fill_from_blocks(Stored type, const uint8_t* blocks, int columns, void* tiles, int lane) {
    auto by = [&](auto is, auto* tile, auto values, auto bytes) {
        constexpr Stored kType = decltype(is)::value;
        constexpr int kValues = decltype(values)::value, kBytes = decltype(bytes)::value;
        using Tile = std::remove_pointer_t<decltype(tile)>;
        return fill<kType, Tile, kValues, kBytes>(blocks, columns, (Tile*)tiles, lane);
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

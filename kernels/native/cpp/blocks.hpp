// Blocks of the types that files hold, taken apart (layouts as in ggml-common.h): what kernels/blocks.py does in numpy. It
// is done for sixteen rows at once: a vector holds four bytes of each.
#pragma once

// Where sixteen rows begin.
using Rows = const uint8_t* const*;

INLINE Int each_byte(int bits) { return splat_int((int32_t)((uint32_t)bits * 0x01010101u)); }

template <int Bytes>  // a multiple of 16
INLINE void load_rows(Rows rows, ptrdiff_t at, Int* words) {
    for (int i = 0; i < Bytes; i += 16) load_rows(rows, at + i, words + i / 4);
}

// Numbers of a few bits in bytes that hold a run of first ones, then of second ones, and so on.
template <int Bits, int Run, int Count>
INLINE void numbers_of(const Int* bytes, Int* out) {
    const Int mask = each_byte((1 << Bits) - 1);
#pragma GCC unroll 8
    for (int done = 0; done < Count; bytes += Run / 4)
#pragma GCC unroll 8
        for (int shift = 0; shift < 8; shift += Bits)
#pragma GCC unroll 16
            for (int i = 0; i < Run / 4; i++, done += 4) *out++ = (bytes[i] >> shift) & mask;
}

// The four lowest nibbles, or pairs of bits, of a lane: a byte each.
INLINE Int spread_nibbles(Int a) {
    a = (a | a << 8) & splat_int(0x00ff00ff);
    return (a | a << 4) & each_byte(15);
}
INLINE Int spread_pairs(Int a) {
    a = (a | a << 12) & splat_int(0x000f000f);
    return (a | a << 6) & each_byte(3);
}

// The bytes that end two before those of `high` begin: files align numbers to two bytes, not to four.
INLINE Int straddling(Int low, Int high) { return low >> 16 | high << 16; }

// Of sixteen rows the same block. Number i of codes, and of scales, has those of four inputs, or runs, from 4 i on.
template <int Values>
struct Block {
    Int codes[Values / 4];
    Int halves[2];     // in the low half of a lane: float16 scale and minimum, or what those of a super-block are multiples of
    Int scales[2][4];  // scales, then minima, that are bytes or less
};

INLINE void read_nibbles(Rows rows, ptrdiff_t at, Block<32>& block) {
    Int bytes[4];
    load_rows(rows, at, bytes);
    numbers_of<4, 16, 32>(bytes, block.codes);
}

// bits: that of code i is bit i.
INLINE void add_fifth_bits(Int bits, Block<32>& block) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        Int copies = ((bits >> 4 * i) & splat_int(15)) * splat_int(0x00204081);  // one for each byte, 7 bits apart
        block.codes[i] = block.codes[i] | (copies & each_byte(1)) << 4;
    }
}

// What scales and minima of a super-block are multiples of. Files subtract what is added here.
INLINE void set_units(Int both, Block<256>& block) {
    block.halves[0] = both;
    block.halves[1] = (both >> 16) ^ splat_int(0x8000);
}

template <Stored Type>
using Is = std::integral_constant<Stored, Type>;

INLINE void read_block(Is<Stored::Q4_0>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.halves[0] = head[0];
    read_nibbles(rows, at + 2, block);
}

INLINE void read_block(Is<Stored::Q4_1>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.halves[0] = head[0], block.halves[1] = head[0] >> 16;
    read_nibbles(rows, at + 4, block);
}

INLINE void read_block(Is<Stored::Q5_0>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.halves[0] = head[0];
    read_nibbles(rows, at + 6, block);
    add_fifth_bits(straddling(head[0], head[1]), block);
}

INLINE void read_block(Is<Stored::Q5_1>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.halves[0] = head[0], block.halves[1] = head[0] >> 16;
    read_nibbles(rows, at + 8, block);
    add_fifth_bits(head[1], block);
}

INLINE void read_block(Is<Stored::Q8_0>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.halves[0] = head[0];
    load_rows<32>(rows, at + 2, block.codes);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) block.codes[i] = block.codes[i] ^ each_byte(0x80);
}

// Scales and minima of 6 bits of the 8 groups (get_scale_min_k4 in ggml-quants.c).
INLINE void read_k(Rows rows, ptrdiff_t at, ptrdiff_t nibbles, Block<256>& block) {
    Int head[4], bytes[32];
    load_rows(rows, at, head);
    set_units(head[0], block);
    const Int six = each_byte(63), low = each_byte(15), high = each_byte(48);
    block.scales[0][0] = head[1] & six;
    block.scales[1][0] = head[2] & six;
    block.scales[0][1] = (head[3] & low) | (head[1] >> 2 & high);
    block.scales[1][1] = (head[3] >> 4 & low) | (head[2] >> 2 & high);
    load_rows<128>(rows, nibbles, bytes);
    numbers_of<4, 32, 256>(bytes, block.codes);
}

// The upper bits of codes, from bytes that hold a run of 32 first ones and so on.
template <int Bits, int At>
INLINE void add_upper_bits(const Int* bytes, Block<256>& block) {
    Int upper[64];
    numbers_of<Bits, 32, 256>(bytes, upper);
    for (int i = 0; i < 64; i++) block.codes[i] = block.codes[i] | upper[i] << At;
}

INLINE void read_block(Is<Stored::Q4_K>, Rows rows, ptrdiff_t at, Block<256>& block) {
    read_k(rows, at, at + 16, block);
}

INLINE void read_block(Is<Stored::Q5_K>, Rows rows, ptrdiff_t at, Block<256>& block) {
    read_k(rows, at, at + 48, block);
    Int high[8];
    load_rows<32>(rows, at + 16, high);
    add_upper_bits<1, 4>(high, block);
}

INLINE void read_block(Is<Stored::Q6_K>, Rows rows, ptrdiff_t at, Block<256>& block) {
    Int bytes[48], tail[4];
    load_rows<192>(rows, at, bytes);
    numbers_of<4, 64, 256>(bytes, block.codes);
    add_upper_bits<2, 4>(bytes + 32, block);
    load_rows(rows, at + 192, block.scales[0]);
    for (int i = 0; i < 4; i++) block.scales[0][i] = block.scales[0][i] ^ each_byte(0x80);
    load_rows(rows, at + 194, tail);
    block.halves[0] = tail[3] >> 16;
}

INLINE void read_block(Is<Stored::Q3_K>, Rows rows, ptrdiff_t at, Block<256>& block) {
    Int high[8], bytes[16], tail[4];
    load_rows<32>(rows, at, high);
    load_rows<64>(rows, at + 32, bytes);
    numbers_of<2, 32, 256>(bytes, block.codes);
    add_upper_bits<1, 2>(high, block);
    load_rows(rows, at + 94, tail);
    block.halves[0] = tail[3] >> 16;
    const Int packed[] = {straddling(tail[0], tail[1]), straddling(tail[1], tail[2])};
    const Int upper = straddling(tail[2], tail[3]);
    for (int i = 0; i < 4; i++)
        block.scales[0][i] = (packed[i % 2] >> i / 2 * 4 & each_byte(15)) | (upper >> 2 * i & each_byte(3)) << 4;
}

INLINE void read_block(Is<Stored::Q2_K>, Rows rows, ptrdiff_t at, Block<256>& block) {
    Int packed[4], bytes[16], tail[4];
    load_rows(rows, at, packed);
    for (int i = 0; i < 4; i++) {
        block.scales[0][i] = packed[i] & each_byte(15);
        block.scales[1][i] = packed[i] >> 4 & each_byte(15);
    }
    load_rows<64>(rows, at + 16, bytes);
    numbers_of<2, 32, 256>(bytes, block.codes);
    load_rows(rows, at + 68, tail);
    set_units(tail[3], block);
}

// Digits to the base 3, of fractions: power is 3 to the number of the digit.
INLINE Int digits(Int bytes, int power) {
    const Int even = splat_int(0x00ff00ff), factor = splat_int(power), three = splat_int(3);
    Int first = (((bytes & even) * factor) & even) * three >> 8 & even;
    Int second = ((((bytes >> 8) & even) * factor) & even) * three >> 8 & even;
    return first | second << 8;
}

INLINE void read_block(Is<Stored::TQ1_0>, Rows rows, ptrdiff_t at, Block<256>& block) {
    constexpr int kPowers[] = {1, 3, 9, 27, 81};
    Int bytes[12], tail[4], *out = block.codes;
    load_rows<48>(rows, at, bytes);
    load_rows(rows, at + 38, tail);
    block.halves[0] = tail[3] >> 16;
    for (int power : kPowers)
        for (int i = 0; i < 8; i++) *out++ = digits(bytes[i], power);
    for (int power : kPowers)
        for (int i = 8; i < 12; i++) *out++ = digits(bytes[i], power);
    for (int i = 0; i < 4; i++) *out++ = digits(straddling(tail[2], tail[3]), kPowers[i]);
}

INLINE void read_block(Is<Stored::TQ2_0>, Rows rows, ptrdiff_t at, Block<256>& block) {
    Int bytes[16], tail[4];
    load_rows<64>(rows, at, bytes);
    numbers_of<2, 32, 256>(bytes, block.codes);
    load_rows(rows, at + 50, tail);
    block.halves[0] = tail[3] >> 16;
}

INLINE void read_block(Is<Stored::IQ4_NL>, Rows rows, ptrdiff_t at, Block<32>& block) {
    read_block(Is<Stored::Q4_0>(), rows, at, block);
}

INLINE void read_block(Is<Stored::IQ4_XS>, Rows rows, ptrdiff_t at, Block<256>& block) {
    Int head[4], bytes[32];
    load_rows(rows, at, head);
    block.halves[0] = head[0];
    for (int i = 0; i < 2; i++)
        block.scales[0][i] =
            spread_nibbles(head[1] >> 16 * i & splat_int(0xffff)) | spread_pairs(head[0] >> (16 + 8 * i) & splat_int(255)) << 4;
    load_rows<128>(rows, at + 8, bytes);
    numbers_of<4, 16, 256>(bytes, block.codes);
}

INLINE void read_block(Is<Stored::MXFP4>, Rows rows, ptrdiff_t at, Block<32>& block) {
    Int head[4];
    load_rows(rows, at, head);
    block.scales[0][0] = head[0] & splat_int(255);
    read_nibbles(rows, at + 1, block);
}

// A scale has no sign here, and what would be NaN in OCP MX is 0 (ggml_ue4m3_to_fp32 in ggml-impl.h).
INLINE void read_block(Is<Stored::NVFP4>, Rows rows, ptrdiff_t at, Block<64>& block) {
    Int head[4], bytes[8];
    load_rows(rows, at, head);
    const Int low = each_byte(127);
    Int other = head[0] ^ low;
    other = (((other & low) + low) | other) & each_byte(128);  // the top bit where a byte is not that of NaN
    block.scales[0][0] = head[0] & (other - (other >> 7));
    load_rows<32>(rows, at + 4, bytes);
    numbers_of<4, 8, 64>(bytes, block.codes);
}

// Weights as files and numpy keep them -> tiles, sixteen rows at a time; kernels/stored.py reads the same from them.
#pragma once

#include "blocks.hpp"

// Whether a lane is not zero.
INLINE bool any(Int a) { return largest(a >> 1 | (a & splat_int(1))) != 0; }

// Has bit 15 where a value of the block is not finite: those of MXFP4 reach 6 times its power of two.
template <class Tile, int Values>
INLINE Int infinities(const Block<Values>& block) {
    Int found = splat_int(0);
    for (int which = 0; which < Tile::kNumbers; which++) {
        if constexpr (Tile::kKind.block > 0 || Tile::kScales == native::Scales::f16)
            found = found | ((block.halves[which] & splat_int(0x7c00)) + splat_int(0x400));
        if constexpr (Tile::kScales == native::Scales::e8m0) found = found | (block.scales[which][0] + splat_int(3)) << 7;
    }
    return found;
}

// A plane of B bits of the codes of a group: the fields that begin at bit `At` of each byte.
template <int B, int At>
INLINE void put_plane(const Int* codes, uint8_t* plane) {
#pragma GCC unroll 8
    for (int i = 0; i < B; i++) {
        Int fields = splat_int(0);
#pragma GCC unroll 8
        for (int s = 0; s < 8 / B; s++) fields = fields | (codes[i + s * B] >> At & each_byte((1 << B) - 1)) << B * s;
        store_int((int32_t*)(plane + 64 * i), fields);
    }
}

// The scales of four runs, a byte each.
template <class Tile>
INLINE void put_scales(uint8_t* p, int run, Int four) {
    constexpr int bits = Tile::kKind.bits;
    constexpr int lines = bits == 8 ? (Tile::kRuns < 4 ? Tile::kRuns : 4) : 2;  // of the plane: a byte for each row
    if constexpr (bits < 8) {
        Int pairs = (four & splat_int(0x000f000f)) | (four >> 4 & splat_int(0x00f000f0));
        Int upper = four >> 4 & each_byte(3);
        if constexpr (bits == 6)
            store_low_bytes(p + (Tile::kRuns / 2 + run / 4) * kLanes, upper | upper >> 6 | upper >> 12 | upper >> 18);
        four = pairs;
    }
#pragma GCC unroll 4
    for (int i = 0; i < lines; i++)
        store_low_bytes(p + (bits == 8 ? run + i : run / 2 + i) * kLanes, four >> (bits == 8 ? 8 : 16) * i);
}

// A block lies in one tile or several.
template <class Tile, int Values>
INLINE void put_block(const Block<Values>& block, Tile* tiles) {
    for (int g = 0; g < Values / kGroup; g++) {
        uint8_t* codes = tiles[g / Tile::kGroups].codes[g % Tile::kGroups];
        put_plane<Tile::kLowBits, 0>(block.codes + 8 * g, codes);
        if constexpr (Tile::kHighBits > 0)
            put_plane<Tile::kHighBits, Tile::kLowBits>(block.codes + 8 * g, codes + 64 * Tile::kLowBits);
    }
    for (int which = 0; which < Tile::kNumbers; which++) {
        if constexpr (Tile::kKind.block > 0 || Tile::kScales == native::Scales::f16)
            store_low_halves((uint16_t*)tiles->numbers + which * kLanes, block.halves[which]);
        if constexpr (Tile::kScales != native::Scales::f16)
            for (int run = 0; run < Values / Tile::kRun; run += Tile::kRuns < 4 ? Tile::kRuns : 4)
                put_scales<Tile>(const_cast<uint8_t*>(tiles[run / Tile::kRuns].scales(which)), run % Tile::kRuns,
                                 block.scales[which][run / 4] >> run % 4 * 8);
    }
}

// next: where the sixteen rows after these begin, one behind the other; they need not exist. They are fetched here, as
// sixteen rows side by side are more than a processor foresees.
template <Stored Type, int Values, int Bytes, class Tile>
static bool repack_blocks(Rows rows, const uint8_t* next, int columns, Tile* tiles) {
    static_assert(Values % Tile::kColumns == 0, "blocks are whole tiles");
    Int found = splat_int(0);
    Block<Values> block;
    for (ptrdiff_t at = 0, blocks = columns / Values; blocks > 0; blocks--, at += Bytes, tiles += Values / Tile::kColumns) {
        for (int i = 0; i < kLanes * Bytes; i += 64) fetch_near(next + kLanes * at + i);
        read_block(Is<Type>(), rows, at, block);
        found = found | infinities<Tile>(block);
        put_block(block, tiles);
    }
    return !any(found & splat_int(0x8000));
}

// Canonical codes of four bits have that of input i beside that of i + 16, as tiles do. line: the rows' numbers.
template <class Tile>
static bool repack_arrays(const Source& source, Rows rows, const int64_t* line, int columns, Tile* tiles) {
    static_assert(Tile::kBits == Tile::kLowBits && Tile::kBits >= 4 && Tile::kKind.block == 0, "of these there are arrays");
    for (int k = 0; k < groups_of(columns); k++) {
        Int words[Tile::kRowBytes / 4];
        load_rows<Tile::kRowBytes>(rows, k * source.codes_group, words);
        for (int i = 0; i < Tile::kRowBytes / 4; i++)
            store_int((int32_t*)(tiles[k / Tile::kGroups].codes[k % Tile::kGroups] + 64 * i),
                      Tile::kBits == 8 ? words[i] ^ each_byte(0x80) : words[i]);
    }
    bool finite = true;
    const uint8_t* numbers[] = {source.scales, source.minima};
    const int64_t rows_apart[] = {source.scales_row, source.minima_row};
    const int64_t runs_apart[] = {source.scales_group, source.minima_group};
    for (int which = 0; which < Tile::kNumbers; which++)
        for (int run = 0; run < divided(columns, Tile::kRun); run++) {
            constexpr int bytes = Tile::kKind.bits / 8;
            constexpr uint32_t top = bytes == 2 ? 0x7c00 : 0x7f800000;
            uint8_t* out = const_cast<uint8_t*>(tiles[run / Tile::kRuns].scales(which)) + run % Tile::kRuns * kLanes * bytes;
            for (int lane = 0; lane < kLanes; lane++) {
                uint32_t bits = 0;
                memcpy(&bits, numbers[which] + line[lane] * rows_apart[which] + run * runs_apart[which], bytes);
                finite &= (bits & top) != top;
                memcpy(out + lane * bytes, &bits, bytes);
            }
        }
    return finite;
}

// codes_group is the step from one column to the next.
template <Format F>
static bool repack_plain(const Source& source, Rows rows, int columns, TileOf<F>* tiles) {
    using Value = typename TileOf<F>::Value;
    constexpr int size = sizeof(Value);
    constexpr uint32_t top = F == Format::f32 ? 0x7f800000 : F == Format::f16 ? 0x7c007c00 : 0x7f807f80;
    constexpr uint32_t least = top & ~(top << 1), sign = size == 4 ? 0x80000000 : 0x80008000;
    Int found = splat_int(0);
    int k = 0;
    for (; source.codes_group == size && k + 16 / size <= columns; k += 16 / size) {
        Int words[4];
        load_rows(rows, (ptrdiff_t)k * size, words);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            found = found | ((words[i] & splat_int((int32_t)top)) + splat_int((int32_t)least));
            if constexpr (size == 4) {
                store_int((int32_t*)tiles[k + i].values, words[i]);
            } else {
                store_low_halves(tiles[k + 2 * i].values, words[i]);
                store_low_halves(tiles[k + 2 * i + 1].values, words[i] >> 16);
            }
        }
    }
    bool finite = !any(found & splat_int((int32_t)sign));
    for (; k < columns; k++)
        for (int lane = 0; lane < kLanes; lane++) {
            uint32_t bits = 0, all = top & (size == 4 ? 0xffffffff : 0xffff);
            memcpy(&bits, rows[lane] + k * source.codes_group, size);
            finite &= (bits & all) != all;
            memcpy(&tiles[k].values[lane], &bits, size);
        }
    return finite || !source.finite;
}

// Rows of a source from `first` on as the lanes of a tile and those beside it; where there are no more the last one is
// repeated. False: a scale, or a value that must be, is not finite.
static bool repack(const Source& source, int64_t first, int columns, void* tiles) {
    const uint8_t* rows[kLanes];
    int64_t line[kLanes];
    for (int lane = 0; lane < kLanes; lane++) {
        line[lane] = first + lane < source.rows ? first + lane : source.rows - 1;
        rows[lane] = source.codes + line[lane] * source.codes_row;
    }
    const uint8_t* next = rows[0] + kLanes * source.codes_row;
    switch ((Stored)source.stored) {
#define CASE(name, values, bytes, format) \
    case Stored::name: return repack_blocks<Stored::name, values, bytes>(rows, next, columns, (TileOf<Format::format>*)tiles);
        STORED_TYPES(CASE)
#undef CASE
        case Stored::none: break;
    }
    switch ((Format)source.format) {
#define CASE(name) \
    case Format::name: return repack_arrays(source, rows, line, columns, (TileOf<Format::name>*)tiles);
        CASE(q4) CASE(q8) CASE(nf4) CASE(q8_64)  // kernels/formats.py: ARRAYS
#undef CASE
#define CASE(name, ...) \
    case Format::name: return repack_plain<Format::name>(source, rows, columns, (TileOf<Format::name>*)tiles);
        PLAIN_FORMATS(CASE)
#undef CASE
        default: return false;
    }
}

// Products of quantized rows with one tile of a packed matrix, 16 outputs.
#pragma once

// Bytes ahead of the products: into the second-level cache, and from there into the first. Found by measuring.
constexpr int kSecondLevelAhead = 10240, kFirstLevelAhead = 1280;

INLINE void fetch_ahead(const void* p, int bytes) {
    for (int i = 0; i < bytes; i += 64) {
        fetch_near((const char*)p + kSecondLevelAhead + i);
        __builtin_prefetch((const char*)p + kFirstLevelAhead + i);
    }
}

// The scales, or minima, of 16 outputs.
template <class Tile>
INLINE Vec scale_lanes(const Tile& w, int which, int run) {
    const uint8_t* p = w.scales(which);
    if constexpr (Tile::kScales == Scales::f16) {
        return load_f16((const uint16_t*)p + run * kLanes);
    } else if constexpr (Tile::kScales == Scales::f32) {
        return load((const float*)p + run * kLanes);
    } else if constexpr (Tile::kScales == Scales::e8m0) {
        Int bits = greater(shift_left<23>(load_bytes(p + run * kLanes)), splat_int(0x400000));
        return as_float(bits) * splat(0.5f);
    } else if constexpr (Tile::kScales == Scales::ue4m3) {
        return as_float(shift_left<20>(load_bytes(p + run * kLanes))) * splat(0x1p119f);
    } else {
        constexpr ScaleKind kind = Tile::kKind;
        Int number;
        if constexpr (kind.bits == 8) {
            number = load_bytes(p + run * kLanes);
        } else {
            Int pair = load_bytes(p + run / 2 * kLanes);
            number = run % 2 ? shift_right<4>(pair) : pair & splat_int(15);
            if constexpr (kind.bits == 6) {
                Int four = load_bytes(p + (Tile::kRuns / 2 + run / 4) * kLanes);
                Int upper = run % 4 == 0   ? shift_left<4>(four)
                            : run % 4 == 1 ? shift_left<2>(four)
                            : run % 4 == 2 ? four
                                           : shift_right<2>(four);
                number = number | (upper & splat_int(48));
            }
        }
        if constexpr (kind.low != 0) number = number - splat_int(-kind.low);
        return load_f16(w.halves(which)) * to_float(number);
    }
}

// Scales and minima of a tile. Those of a single run are taken from the tile itself where that is one instruction.
template <class Tile>
struct TileScales {
    static constexpr bool kKept = Tile::kRuns > 1 || (Tile::kScales != Scales::f16 && Tile::kScales != Scales::f32);
    alignas(64) float v[Tile::kNumbers][kKept ? Tile::kRuns : 1][kLanes];

    INLINE void fill(TileScales& scales, const Tile& w) {
        if constexpr (kKept)
#pragma GCC unroll 2
            for (int which = 0; which < Tile::kNumbers; which++)
#pragma GCC unroll 16
                for (int run = 0; run < Tile::kRuns; run++) store(scales.v[which][run], scale_lanes(w, which, run));
    }
    INLINE Part part(const TileScales& scales, const Tile& w, int which, int run, int part) {
        if constexpr (kKept) return load_part(scales.v[which][run], part);
        else if constexpr (Tile::kScales == Scales::f16) return load_part((const uint16_t*)w.scales(which), part);
        else return load_part((const float*)w.scales(which), part);
    }
};

template <class Tile>
INLINE Part add_product(Part a, Part b, Part c) {
    if constexpr (Tile::kFused) return fma_part(a, b, c);
    else return c + a * b;
}

// A group's scales and minima, for its whole or its halves.
template <class Tile>
struct GroupScales {
    static constexpr int kRuns = Tile::kRun < kGroup ? 2 : 1;
    Part scales[kRuns], minima[kRuns];
    Part lowered;  // what the first scale makes of kRaise, below 0

    INLINE GroupScales of(const Tile& w, const TileScales<Tile>& kept, int group, int part) {
        GroupScales s;
        int run = group * kGroup / Tile::kRun;
#pragma GCC unroll 2
        for (int i = 0; i < kRuns; i++) {
            s.scales[i] = TileScales<Tile>::part(kept, w, 0, run + i, part);
            if constexpr (Tile::kMinima) s.minima[i] = TileScales<Tile>::part(kept, w, 1, run + i, part);
        }
        s.lowered = s.scales[0] * splat_part(-kRaise);
        return s;
    }
};

// Whether `dots` are floats kRaise above the sums of products.
template <int Planes>
constexpr bool kAreRaised = kCanRaise && Planes == 1;

template <int Planes>
INLINE Part sum_of(Part dot) {
    if constexpr (kAreRaised<Planes>) return dot - splat_part(kRaise);
    else return dot;
}

// Adds a group's products with some rows. How codes become integers, and integers products, is the matter of dot_*.hpp.
template <class Tile, int Planes, int Rows>
INLINE void add_group(const Codes& codes, const GroupScales<Tile>& s, const Activation<Planes>* x, Part* acc) {
    constexpr bool halves = GroupScales<Tile>::kRuns == 2;
    Part first[Rows], second[Rows];
    dots<Tile, 0, halves ? 4 : 8, Planes, Rows>(codes, x, first);
    if constexpr (halves) dots<Tile, 4, 4, Planes, Rows>(codes, x, second);
#pragma GCC unroll 8
    for (int j = 0; j < Rows; j++) {
        Part product;
        // Both products are exact before they are rounded, so this has the bits of the plain one.
        if constexpr (kAreRaised<Planes> && Tile::kShortScales) product = fma_part(first[j], s.scales[0], s.lowered);
        else product = sum_of<Planes>(first[j]) * s.scales[0];
        if constexpr (halves) product = add_product<Tile>(sum_of<Planes>(second[j]), s.scales[1], product);
        acc[j] = add_product<Tile>(product, splat_part(x[j].scale), acc[j]);
        if constexpr (!Tile::kMinima) continue;
        if constexpr (!halves) acc[j] = add_product<Tile>(s.minima[0], splat_part(x[j].sum), acc[j]);
        else
            for (int half = 0; half < 2; half++)
                acc[j] = add_product<Tile>(s.minima[half], splat_part(x[j].sums[half]), acc[j]);
    }
}

template <class Tile>
INLINE int tiles_of(int groups) {
    return (groups + Tile::kGroups - 1) / Tile::kGroups;
}

// 16 outputs' products with up to kLinearRows rows, as [rows][16] in memory. A group is unpacked once: then the rows go by,
// kTogether at a time, and at the end the Rest of them. Not inlined: each is needed in several places.
template <class Tile, int Planes, int Rest>
__attribute__((noinline)) static void tile_products(const void* tiles, int groups, const void* blocks, int rows,
                                                    float* out) {
    const auto* x = (const Activation<Planes>*)blocks;
    const Tile* w = (const Tile*)tiles;
    const int whole = rows - Rest;
    Vec rest[Rest ? Rest : 1];
    for (int j = 0; j < Rest; j++) rest[j] = splat(0.0f);
    for (int j = 0; j < whole; j++) store(out + j * kLanes, splat(0.0f));
    for (int group = 0; group < groups; w++) {
        TileScales<Tile> kept;
        TileScales<Tile>::fill(kept, *w);
#pragma GCC unroll 1
        for (int k = 0; k < Tile::kGroups && group < groups; k++, group++) {
            fetch_ahead(w->codes[k], sizeof *w / Tile::kGroups);
#pragma GCC unroll 1
            for (int part = 0; part < kParts; part++) {
                const Codes codes = unpack(*w, k, part);
                const auto scales = GroupScales<Tile>::of(*w, kept, k, part);
#pragma GCC unroll 1
                for (int row = 0; row < whole; row += kTogether) {
                    Part acc[kTogether];
                    float* sums = out + row * kLanes + part * (kLanes / kParts);
#pragma GCC unroll 8
                    for (int j = 0; j < kTogether; j++) acc[j] = load_part(sums + j * kLanes, 0);
                    add_group<Tile, Planes, kTogether>(codes, scales, x + activation_index(row, group, rows, groups), acc);
#pragma GCC unroll 8
                    for (int j = 0; j < kTogether; j++) store_part(sums + j * kLanes, acc[j]);
                }
                if constexpr (Rest > 0)
                    add_group<Tile, Planes, Rest>(codes, scales, x + activation_index(whole, group, rows, groups), rest);
            }
        }
    }
    for (int j = 0; j < Rest; j++) store(out + (whole + j) * kLanes, rest[j]);
}

using TileProducts = void (*)(const void* tiles, int groups, const void* blocks, int rows, float* out);

// How the tiles of a format are multiplied, by planes of the activations.
struct PackedProducts {
    size_t tile_bytes;
    int tile_groups;
    TileProducts with_rest[kTogether];  // of rows beside multiples of kTogether

    size_t bytes_of(int groups) const { return (size_t)((groups + tile_groups - 1) / tile_groups) * tile_bytes; }
};
template <class Tile, int Planes, int... Rest>
constexpr PackedProducts products_of(std::integer_sequence<int, Rest...>) {
    return {sizeof(Tile), Tile::kGroups, {tile_products<Tile, Planes, Rest>...}};
}
template <class Tile, int Planes>
static constexpr PackedProducts kProducts = products_of<Tile, Planes>(std::make_integer_sequence<int, kTogether>{});

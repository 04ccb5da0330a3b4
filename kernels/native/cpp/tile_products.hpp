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

// The scales of microscaling formats, of 16 outputs.
template <class Tile>
INLINE Vec micro_scales(const uint8_t* bits) {
    if constexpr (Tile::kScales == Scales::e8m0)
        return as_float(greater(shift_left<23>(load_bytes(bits)), splat_int(0x400000))) * splat(0.5f);
    else return as_float(shift_left<20>(load_bytes(bits))) * splat(0x1p119f);
}

// Scales and minima of a tile, as far prepared as pays for all of its groups.
template <class Tile>
struct TileScales {
    static constexpr bool kMicro = Tile::kScales == Scales::e8m0 || Tile::kScales == Scales::ue4m3;
    static constexpr bool kNumbered = Tile::kKind.block > 0, kShort = kNumbered && Tile::kKind.bits < 8;
    alignas(64) float values[kMicro || kNumbered ? Tile::kNumbers : 1][kMicro ? Tile::kRuns : 1][kLanes];
    alignas(64) uint8_t numbers[Tile::kNumbers][kShort ? Tile::kRuns : 1][kLanes];

    INLINE void fill(TileScales& kept, const Tile& w) {
#pragma GCC unroll 2
        for (int which = 0; which < Tile::kNumbers; which++) {
            if constexpr (kNumbered) store(kept.values[which][0], load_f16(w.halves(which)));
            if constexpr (kMicro)
                for (int run = 0; run < Tile::kRuns; run++)
                    store(kept.values[which][run], micro_scales<Tile>(w.scales(which) + run * kLanes));
            if constexpr (kShort) unpack_numbers(w.scales(which), kept.numbers[which]);
        }
    }
    INLINE Part part(const TileScales& kept, const Tile& w, int which, int run, int part) {
        const uint8_t* scales = w.scales(which);
        if constexpr (kMicro) return load_part(kept.values[which][run], part);
        else if constexpr (Tile::kScales == Scales::f16) return load_part((const uint16_t*)scales + run * kLanes, part);
        else if constexpr (Tile::kScales == Scales::f32) return load_part((const float*)scales + run * kLanes, part);
        else {
            Part number = load_part(kShort ? kept.numbers[which][run] : scales + run * kLanes, part);
            if constexpr (Tile::kKind.low != 0) number = number - splat_part(-(float)Tile::kKind.low);
            return load_part(kept.values[which][0], part) * number;
        }
    }

private:
    typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

    // Numbers of 4 and 6 bits as bytes.
    INLINE void unpack_numbers(const uint8_t* fields, uint8_t numbers[][kLanes]) {
        Bytes pair, four, number;
#pragma GCC unroll 16
        for (int run = 0; run < Tile::kRuns; run++) {
            memcpy(&pair, fields + run / 2 * kLanes, kLanes);
            number = (run % 2 ? pair >> 4 : pair) & 15;
            if constexpr (Tile::kKind.bits == 6) {
                memcpy(&four, fields + (Tile::kRuns / 2 + run / 4) * kLanes, kLanes);
                number |= (run % 4 < 2 ? four << (4 - run % 4 * 2) : four >> (run % 4 * 2 - 4)) & 48;
            }
            memcpy(numbers[run], &number, kLanes);
        }
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
    return divided(groups, Tile::kGroups);
}

// Adds a group's products with the first `whole` rows to sums in memory: they are too many for registers.
template <class Tile, int Planes>
INLINE void add_group_to_many(const Codes& codes, const GroupScales<Tile>& scales, const Activation<Planes>* x, int group,
                              int groups, int rows, int whole, float* sums) {
#pragma GCC unroll 1
    for (int first = 0; first < whole; first += kBlockRows) {
        const int height = block_height(first, rows), end = height / kTogether * kTogether;
        const Activation<Planes>* near = x + first * groups + group * height;
#pragma GCC unroll 1
        for (int row = 0; row < end; row += kTogether, near += kTogether, sums += kTogether * kLanes) {
            Part acc[kTogether];
#pragma GCC unroll 8
            for (int j = 0; j < kTogether; j++) acc[j] = load_part(sums + j * kLanes, 0);
            add_group<Tile, Planes, kTogether>(codes, scales, near, acc);
#pragma GCC unroll 8
            for (int j = 0; j < kTogether; j++) store_part(sums + j * kLanes, acc[j]);
        }
    }
}

// 16 outputs' products with up to kLinearRows rows, as [rows][16] in memory. A group is unpacked once: then the rows go by,
// kTogether at a time where there are so Many, and at the end the Rest of them. Not inlined: each is needed in several places.
template <class Tile, int Planes, bool Many, int Rest>
__attribute__((noinline)) static void tile_products(const void* tiles, int groups, const void* blocks, int rows,
                                                    float* out) {
    const auto* x = (const Activation<Planes>*)blocks;
    const Tile* w = (const Tile*)tiles;
    const int whole = Many ? rows - Rest : 0;
    Part rest[kParts][Rest ? Rest : 1];
    for (int j = 0; j < whole; j++) store(out + j * kLanes, splat(0.0f));
    for (auto& part : rest)
        for (int j = 0; j < Rest; j++) part[j] = splat_part(0.0f);
    for (int group = 0; group < groups; w++) {
        TileScales<Tile> kept;
        TileScales<Tile>::fill(kept, *w);
#pragma GCC unroll 1
        for (int k = 0; k < Tile::kGroups && group < groups; k++, group++) {
            constexpr int bytes = sizeof *w / Tile::kGroups;
            fetch_ahead((const char*)w + k * bytes, bytes);
#pragma GCC unroll 2
            for (int part = 0; part < kParts; part++) {
                const Codes codes = unpack(*w, k, part);
                const auto scales = GroupScales<Tile>::of(*w, kept, k, part);
                if constexpr (Many)
                    add_group_to_many<Tile>(codes, scales, x, group, groups, rows, whole, out + part * (kLanes / kParts));
                if constexpr (Rest > 0)
                    add_group<Tile, Planes, Rest>(codes, scales, x + activation_index(whole, group, rows, groups),
                                                  rest[part]);
            }
        }
    }
    for (int part = 0; part < kParts; part++)
        for (int j = 0; j < Rest; j++)
            store_part(out + (whole + j) * kLanes + part * (kLanes / kParts), rest[part][j]);
}

using TileProducts = void (*)(const void* tiles, int groups, const void* blocks, int rows, float* out);

// How the tiles of a format are multiplied, by planes of the activations.
struct PackedProducts {
    size_t tile_bytes;
    int tile_groups;
    TileProducts few[kFew + 1];    // by the number of rows
    TileProducts many[kTogether];  // by what is left of them

    size_t bytes_of(int groups) const { return (size_t)divided(groups, tile_groups) * tile_bytes; }
    TileProducts of(int rows) const { return rows <= kFew ? few[rows] : many[rows % kTogether]; }
};
template <class Tile, int Planes, int... Few, int... Rest>
constexpr PackedProducts products_of(std::integer_sequence<int, Few...>, std::integer_sequence<int, Rest...>) {
    return {sizeof(Tile),
            Tile::kGroups,
            {nullptr, tile_products<Tile, Planes, false, Few + 1>...},
            {tile_products<Tile, Planes, true, Rest>...}};
}
template <class Tile, int Planes>
static constexpr PackedProducts kProducts = products_of<Tile, Planes>(std::make_integer_sequence<int, kFew>{},
                                                                      std::make_integer_sequence<int, kTogether>{});

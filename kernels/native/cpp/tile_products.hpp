// Products of quantized rows with one tile of a packed matrix, 16 outputs.
#pragma once

// Bytes ahead of the products: into the second-level cache, and from there into the first. Found by measuring.
constexpr int kSecondLevelAhead = 10240, kFirstLevelAhead = 1280;

// Where several passes go over a tile each fetches its share of what follows, so that the memory is busy all the time.
struct Prefetch {
    int passes, wait;

    Prefetch(int pass, int passes) : passes(passes), wait(pass) {}

    __attribute__((always_inline)) void operator()(const void* p, int bytes) {
        if (wait-- > 0) return;
        wait = passes - 1;
        for (int i = 0; i < bytes; i += 64) {
            fetch_near((const char*)p + kSecondLevelAhead + i);
            __builtin_prefetch((const char*)p + kFirstLevelAhead + i);
        }
    }
};

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

// Adds a group's products with some rows. How codes become integers, and integers products, is the matter of dot_*.hpp,
// which may work on parts of the outputs.
template <class Tile, int Planes>
INLINE void multiply_group(const Tile& w, int group, const TileScales<Tile>& kept, const Activation<Planes>* x,
                           int rows, Vec* acc) {
    constexpr int runs = Tile::kRun < kGroup ? 2 : 1;
    int run = group * kGroup / Tile::kRun;
    for (int part = 0; part < kParts; part++) {
        auto codes = unpack(w, group, part);
        Part scales[runs], minima[runs];
#pragma GCC unroll 2
        for (int i = 0; i < runs; i++) {
            scales[i] = TileScales<Tile>::part(kept, w, 0, run + i, part);
            if constexpr (Tile::kMinima) minima[i] = TileScales<Tile>::part(kept, w, 1, run + i, part);
        }
        for (int first = 0; first < rows; first += kTogether) {
            int count = rows - first < kTogether ? rows - first : kTogether;
            const Activation<Planes>* near = x + first;
            Part sums[kTogether];
            if constexpr (runs == 1) {
                dots<Tile, 0, 8>(codes, near, count, sums);
#pragma GCC unroll 8
                for (int j = 0; j < count; j++) sums[j] = sums[j] * scales[0];
            } else {
                Part seconds[kTogether];
                dots<Tile, 0, 4>(codes, near, count, sums);
                dots<Tile, 4, 4>(codes, near, count, seconds);
#pragma GCC unroll 8
                for (int j = 0; j < count; j++)
                    sums[j] = add_product<Tile>(seconds[j], scales[1], sums[j] * scales[0]);
            }
#pragma GCC unroll 8
            for (int j = 0; j < count; j++) {
                Part& total = part_of(acc[first + j], part);
                total = add_product<Tile>(sums[j], splat_part(near[j].scale), total);
                if constexpr (!Tile::kMinima) continue;
                if constexpr (runs == 1) total = add_product<Tile>(minima[0], splat_part(near[j].sum), total);
                else
                    for (int half = 0; half < 2; half++)
                        total = add_product<Tile>(minima[half], splat_part(near[j].sums[half]), total);
            }
        }
    }
}

template <class Tile>
INLINE int tiles_of(int groups) {
    return (groups + Tile::kGroups - 1) / Tile::kGroups;
}

// 16 outputs' products with some rows, as [rows][16] in memory. Rows: how many, 0 for any number. Not inlined: each is
// needed in several places.
template <class Tile, int Planes, int Rows>
__attribute__((noinline)) static void tile_products(const void* tiles, int groups, const void* blocks, int height,
                                                    int rows, Prefetch prefetch, float* out) {
    const auto* x = (const Activation<Planes>*)blocks;
    const int n = Rows ? Rows : rows;
    Vec acc[Rows ? Rows : kPassRows];
    for (int j = 0; j < n; j++) acc[j] = splat(0.0f);
    for (const Tile* w = (const Tile*)tiles; groups > 0; w++, groups -= Tile::kGroups) {
        TileScales<Tile> scales;
        TileScales<Tile>::fill(scales, *w);
        int count = groups < Tile::kGroups ? groups : Tile::kGroups;
#pragma GCC unroll 1
        for (int group = 0; group < count; group++, x += height) {
            constexpr int bytes = sizeof *w / Tile::kGroups;
            prefetch((const char*)w + group * bytes, bytes);
            multiply_group<Tile, Planes>(*w, group, scales, x, n, acc);
        }
    }
    for (int j = 0; j < n; j++) store(out + j * kLanes, acc[j]);
}

using TileProducts = void (*)(const void* tiles, int groups, const void* blocks, int height, int rows,
                              Prefetch prefetch, float* out);

// How the tiles of a format are multiplied, by planes of the activations.
struct PackedProducts {
    size_t tile_bytes;
    int tile_groups;
    TileProducts of_rows[kPassRows];  // of 1, 2, ... rows

    size_t bytes_of(int groups) const { return (size_t)((groups + tile_groups - 1) / tile_groups) * tile_bytes; }
};
template <class Tile, int Planes>
static constexpr PackedProducts kProducts = {
    sizeof(Tile),
    Tile::kGroups,
    {tile_products<Tile, Planes, kUnrolled ? 1 : 0>, tile_products<Tile, Planes, kUnrolled ? 2 : 0>,
     tile_products<Tile, Planes, kUnrolled ? 3 : 0>, tile_products<Tile, Planes, kUnrolled ? 4 : 0>,
     tile_products<Tile, Planes, kUnrolled ? 5 : 0>, tile_products<Tile, Planes, kUnrolled ? 6 : 0>,
     tile_products<Tile, Planes, kUnrolled ? 7 : 0>, tile_products<Tile, Planes, kUnrolled ? 8 : 0>}};

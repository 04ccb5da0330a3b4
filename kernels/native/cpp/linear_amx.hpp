// Products with quantized weights by the tile unit of AMX: one instruction makes the exact integer sums of a group's 32
// inputs for 16 rows and 16 outputs. Scales and minima follow in vectors, in the order that docs/numerics.md fixes.
#pragma once

constexpr int kLeastRows = 13;  // of a block: with fewer whole steps are faster by vectors alone, found by measuring
constexpr int kStrip = 48;      // groups whose codes are unpacked at a time, whole tiles: 24 KB, for the first-level cache

// The tile registers of a thread, for as long as this lives. 0 and 1: sums of a plane; 2 and 3: rows; 4: codes.
class TileRegisters {
public:
    ~TileRegisters() { _tile_release(); }  // what is in use is saved at every switch of threads

    // Afterwards rows and sums are `rows` high.
    void shape(int rows) {
        if (rows == rows_) return;
        rows_ = rows;
        struct alignas(64) {
            uint8_t palette, start_row, reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } config = {};
        config.palette = 1;
        for (int i = 0; i < 4; i++) {
            config.row_bytes[i] = i < 2 ? kLanes * sizeof(int32_t) : kGroup;
            config.rows[i] = (uint8_t)rows;
        }
        config.row_bytes[4] = 4 * kLanes;
        config.rows[4] = kGroup / 4;
        asm volatile("" : : "r"(&config) : "memory");  // GCC 12 takes all but the first bytes for unused
        _tile_loadconfig(&config);
    }

private:
    int rows_ = 0;
};

// The integers of some groups as int8, in the order that a tile product reads: [input / 4][output][input % 4].
template <class Tile>
INLINE void unpack_groups(const Tile* w, int groups, int8_t* integers) {
    for (int k = 0; k < groups; k++, integers += kGroup * kLanes) {
        Codes codes = unpack(w[k / Tile::kGroups], k % Tile::kGroups, 0);
        for (int i = 0; i < 8; i++)
            _mm512_store_si512(integers + 64 * i, _mm512_add_epi8(codes.v[i], _mm512_set1_epi8((char)kLeast<Tile>)));
    }
}

using Dots = int32_t[kBlockRows][kLanes];

template <int Planes>
INLINE void dot_products(const int8_t* codes, const Activation<Planes>* x, Dots dots[Planes]) {
    _tile_loadd(4, codes, 4 * kLanes);
    _tile_loadd(2, x->planes[0], sizeof *x);
    _tile_zero(0);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, dots[0], kLanes * sizeof(int32_t));
    if (Planes == 1) return;
    _tile_loadd(3, x->planes[Planes - 1], sizeof *x);
    _tile_zero(1);
    _tile_dpbssd(1, 3, 4);
    _tile_stored(1, dots[Planes - 1], kLanes * sizeof(int32_t));
}

// Adds some groups to sums[Rows][16]. The tile unit is one group ahead of the vectors.
template <class Tile, int Planes, int Rows>
__attribute__((noinline)) static void add_groups(const Tile* w, const int8_t* codes, int groups,
                                                 const Activation<Planes>* x, float* sums, bool fetch_next, int next) {
    static_assert(Tile::kRun >= kGroup, "a group has one scale an output");
    alignas(64) Dots dots[2][Planes];
    TileScales<Tile> kept;
    Vec acc[Rows];
#pragma GCC unroll 16
    for (int j = 0; j < Rows; j++) acc[j] = load(sums + j * kLanes);
    dot_products<Planes>(codes, x, dots[0]);
    for (int k = 0; k < groups; k++, x += Rows) {
        if (k + 1 < groups) dot_products<Planes>(codes + (k + 1) * kGroup * kLanes, x + Rows, dots[(k + 1) % 2]);
        const Tile* at = w + k / Tile::kGroups;
        if (k % Tile::kGroups == 0) {
            TileScales<Tile>::fill(kept, *at);
            if (fetch_next)
                for (int i = 0; i < (int)sizeof *at; i += 64) fetch_near((const char*)(at + next) + i);
        }
        int run = k % Tile::kGroups * kGroup / Tile::kRun;
        Vec scales = TileScales<Tile>::part(kept, *at, 0, run, 0), minima = splat(0.0f);
        if constexpr (Tile::kMinima) minima = TileScales<Tile>::part(kept, *at, 1, run, 0);
#pragma GCC unroll 16
        for (int j = 0; j < Rows; j++) {
            Int dot = load_int(dots[k % 2][0][j]);
            if (Planes == 2) dot = shift_left<8>(dot) + load_int(dots[k % 2][Planes - 1][j]);
            acc[j] = add_product<Tile>(to_float(dot) * scales, splat(x[j].scale), acc[j]);
            if (Tile::kMinima) acc[j] = add_product<Tile>(minima, splat(x[j].sum), acc[j]);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < Rows; j++) store(sums + j * kLanes, acc[j]);
}

#define FOR_HEIGHT(n, call) \
    case n: call(n);        \
    break;
#define WITH_HEIGHT(height, call)                                                              \
    switch (height) {                                                                          \
        FOR_HEIGHT(13, call) FOR_HEIGHT(14, call) FOR_HEIGHT(15, call) FOR_HEIGHT(16, call)    \
    }

// One tile's products with the rows row_begin to end, as [rows][16].
template <class Tile, int Planes>
static void block_products(const LinearArgs& a, const void* tiles, int tile, int end, TileRegisters& registers,
                           float* sums) {
    alignas(64) int8_t codes[kStrip * kGroup * kLanes];
    const int along = tiles_of<Tile>(a.groups);
    const Tile* w = (const Tile*)tiles + (size_t)tile * (size_t)along;
    memset(sums, 0, (size_t)(end - a.row_begin) * kLanes * sizeof *sums);
    for (int first = 0; first < a.groups; first += kStrip, w += kStrip / Tile::kGroups) {
        int groups = a.groups - first < kStrip ? a.groups - first : kStrip;
        static_assert(kStrip % Tile::kGroups == 0, "strips are whole tiles");
        unpack_groups(w, groups, codes);
        asm volatile("" : : : "memory");  // GCC 12 does not know that loads of tiles read memory
        for (int row = a.row_begin; row < end; row += kBlockRows) {
            int height = block_height(row, a.rows);
            registers.shape(height);
            const auto* x = activations_of<Planes>(a, row, first);
            float* out = sums + (row - a.row_begin) * kLanes;
#define CALL(n) add_groups<Tile, Planes, n>(w, codes, groups, x, out, row == a.row_begin, along)
            WITH_HEIGHT(height, CALL)
#undef CALL
        }
    }
}

// End of the rows that stand in blocks high enough.
INLINE int end_of_high_blocks(const LinearArgs& a) {
    int rest = (a.row_end - a.row_begin) % kBlockRows;
    return rest < kLeastRows ? a.row_end - rest : a.row_end;
}

template <class Tile, int Planes>
static void tiled_linear(const LinearArgs& a) {
    int end = end_of_high_blocks(a);
    if (end > a.row_begin) {
        TileRegisters registers;
        alignas(64) float sums[kLinearRows * kLanes];
        for (int tile = a.tile_begin; tile < a.tile_end; tile++) {
            block_products<Tile, Planes>(a, a.tiles, tile, end, registers, sums);
            for (int row = a.row_begin; row < end; row++)
                finish(a, tile, row, load(sums + (row - a.row_begin) * kLanes));
        }
    }
    if (end == a.row_end) return;
    LinearArgs rest = a;
    rest.row_begin = end;
    avx512_kernels()->linear[(int)Tile::kFormat][Planes - 1](rest);
}

template <class Tile, int Planes>
static void tiled_gated_linear(const GatedArgs& a) {
    int end = end_of_high_blocks(a);
    if (end > a.row_begin) {
        TileRegisters registers;
        alignas(64) float gate[2][kLinearRows * kLanes], up[2][kLinearRows * kLanes];
        for (int group = a.tile_begin; group < a.tile_end; group++) {
            for (int half = 0; half < 2; half++) {
                int tile = 2 * group + half;
                block_products<Tile, Planes>(a, a.tiles, tile, end, registers, gate[half]);
                block_products<Tile, Planes>(a, a.up_tiles, tile, end, registers, up[half]);
            }
            finish_gated_rows(a, group, a.row_begin, end - a.row_begin, kLinearRows, gate[0], up[0]);
        }
    }
    if (end == a.row_end) return;
    GatedArgs rest = a;
    rest.row_begin = end;
    avx512_kernels()->gated_linear[(int)Tile::kFormat][Planes - 1](rest);
}

// Kernels for x86-64 with AMX in int8 (Sapphire Rapids and later): products with quantized weights; the rest is that of
// AVX-512.
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.hpp"
#include "memory.hpp"

// GCC and clang have the tile instructions in headers of different names.
#if defined(__x86_64__) && defined(__linux__) && (__has_include(<amxint8intrin.h>) || __has_include(<amxintrin.h>))
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8"))), \
                             apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8")
#endif

namespace native {
namespace amx {
#include "vec_avx512.hpp"
#include "math.hpp"
#include "dot_avx512.hpp"
#include "linear.hpp"
#include "linear_amx.hpp"

// Where a group's inputs share a scale; the others are computed as by AVX-512.
template <class Tile>
static void use_tiles(Kernels& kernels) {
    if constexpr (Tile::kRun >= kGroup) {
        auto& linear = kernels.linear[(int)Tile::kFormat];
        auto& gated = kernels.gated_linear[(int)Tile::kFormat];
        linear[0] = tiled_linear<Tile, 1>, linear[1] = tiled_linear<Tile, 2>;
        gated[0] = tiled_gated_linear<Tile, 1>, gated[1] = tiled_gated_linear<Tile, 2>;
    }
}

static Kernels make_kernels() {
    Kernels kernels = *avx512_kernels();
    kernels.name = "amx";
#define TILED(f, ...) use_tiles<TileOf<Format::f>>(kernels);
    PACKED_FORMATS(TILED)
#undef TILED
    return kernels;
}
}  // namespace amx

#if defined(__clang__)
#pragma clang attribute pop
#endif

const Kernels* amx_kernels() {
    static const Kernels kernels = amx::make_kernels();
    return &kernels;
}
}  // namespace native
#else
namespace native {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace native
#endif

// Kernels for x86-64 with AVX-512 VNNI (Ice Lake, Zen 4 and later).
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.hpp"
#include "memory.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#if !defined(__clang__)  // GCC 12 warns of values that its own header leaves undefined on purpose
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// No -march flag: the build is the same for every machine, and the instructions are allowed from here on only.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

namespace native {
namespace avx512 {
#define ISA_NAME "avx512"
#include "vec_avx512.hpp"
#include "dot_avx512.hpp"
#include "kernels_body.hpp"
}  // namespace avx512

#if defined(__clang__)
#pragma clang attribute pop
#endif

const Kernels* avx512_kernels() { return &avx512::kKernels; }
}  // namespace native
#else
namespace native {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace native
#endif

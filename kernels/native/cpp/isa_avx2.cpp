// Kernels for x86-64 with AVX2, FMA and F16C (Haswell, Zen and later).
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.hpp"
#include "memory.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

namespace native {
namespace avx2 {
#define ISA_NAME "avx2"
#include "vec_avx2.hpp"
#include "dot_avx2.hpp"
#include "kernels_body.hpp"
}  // namespace avx2

#if defined(__clang__)
#pragma clang attribute pop
#endif

const Kernels* avx2_kernels() { return &avx2::kKernels; }
}  // namespace native
#else
namespace native {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace native
#endif

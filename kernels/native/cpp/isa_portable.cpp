// Kernels in plain C++.
#include <cstring>

#include "half.hpp"
#include "kernels.hpp"
#include "prefetch.hpp"

namespace native {
namespace portable {
#define ISA portable
#define ISA_NAME "portable"
#include "vec_portable.hpp"
#include "dot_portable.hpp"
#include "kernels_body.hpp"
}  // namespace portable

const Kernels* portable_kernels() { return &portable::kKernels; }
}  // namespace native

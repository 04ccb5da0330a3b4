// Kernels in plain C++.
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.hpp"
#include "memory.hpp"

namespace native {
namespace portable {
#define ISA_NAME "portable"
#include "vec_portable.hpp"
#include "dot_portable.hpp"
#include "kernels_body.hpp"
}  // namespace portable

const Kernels* portable_kernels() { return &portable::kKernels; }
}  // namespace native

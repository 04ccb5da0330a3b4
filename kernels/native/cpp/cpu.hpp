// The kernels that this machine can run.
#pragma once

#include "kernels.hpp"

namespace native {

// name: "auto" for the best, or "amx", "avx512", "avx2", "portable". Null if this machine cannot run those.
const Kernels* choose_kernels(const char* name);

}  // namespace native

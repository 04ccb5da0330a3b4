// Measured read bandwidth of the team.
#pragma once

#include "kernels.hpp"

namespace native {

// Bytes a second: the best of a few plain reads of a buffer of this size. Throws std::bad_alloc.
double read_bandwidth(const Kernels& kernels, size_t bytes, int threads);

}  // namespace native

// Measured read bandwidth of the team.
#pragma once

#include <cstddef>

namespace native {

// Bytes a second: the best of a few plain reads of a buffer of this size. Throws std::bad_alloc.
double read_bandwidth(size_t bytes, int threads);

}  // namespace native

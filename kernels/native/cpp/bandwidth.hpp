// Measured read bandwidth of the team.
#pragma once

#include <memory>
#include <vector>

#include "kernels.hpp"
#include "matrix.hpp"

namespace native {

// Bytes a second: the best of a few plain reads of these matrices, of at most `bytes` of them. It is the weights
// themselves that are read, so nothing is allocated and caches help as much as they help a step. 0: there are none.
double read_bandwidth(const Kernels& kernels, const std::vector<std::unique_ptr<Matrix>>& matrices, size_t bytes,
                      int threads);

}  // namespace native

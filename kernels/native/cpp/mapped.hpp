// Files that are mapped, and may be cut short by another program while they are read.
#pragma once

#include <cstddef>

namespace native {

// From now on a page of this mapping that its file no longer has reads as zeros, instead of ending the process
// (SIGBUS). Returns a number for `is_lost` and `unguard`; -1: no more mappings can be guarded. From any thread.
int guard(const void* begin, size_t size);

// Whether such a page was read, as far as that is still known once the mapping is not guarded any more.
bool is_lost(int number);

// Before the memory is unmapped.
void unguard(int number);

}  // namespace native

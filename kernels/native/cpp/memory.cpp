#include "memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace native {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kChunk = 32 << 20;  // untouched pages of a chunk cost nothing

size_t rounded(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Arena::~Arena() {
    for (const Chunk& chunk : chunks_) munmap(chunk.base, chunk.size);
}

void* Arena::allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    bytes = rounded(bytes, 64);
    if (chunks_.empty() || chunks_.back().size - used_ < bytes) {
        size_t size = rounded(bytes > kChunk ? bytes : kChunk, kHugePage);
        void* base = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
        madvise(base, size + kHugePage, MADV_HUGEPAGE);
#endif
        chunks_.push_back({(char*)base, size + kHugePage});
        used_ = rounded((size_t)base, kHugePage) - (size_t)base;
    }
    void* piece = chunks_.back().base + used_;
    used_ += bytes;
    given_ += bytes;
    return piece;
}

}  // namespace native

#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace native {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kChunk = 32 << 20;  // untouched pages of a chunk cost nothing

size_t rounded(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Zeroed memory that begins at a huge page; null: there is none.
char* map_memory(size_t size) {
    void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* base = (char*)rounded((size_t)mapped, kHugePage);
    if (base != mapped) munmap(mapped, (size_t)(base - (char*)mapped));
    munmap(base + size, (size_t)((char*)mapped + kHugePage - base));
#if defined(MADV_HUGEPAGE)
    madvise(base, size, MADV_HUGEPAGE);
#endif
    return base;
}

}  // namespace

Arena::~Arena() {
    for (const Chunk& chunk : chunks_) munmap(chunk.base, chunk.size);
}

void* Arena::allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    bytes = rounded(bytes, 64);
    size_t left = chunks_.empty() ? 0 : chunks_.back().size - used_;
    if (left < bytes) {
        size_t size = rounded(bytes > kChunk ? bytes : kChunk, kHugePage);
        char* base = map_memory(size);
        if (!base) throw std::bad_alloc();
        chunks_.push_back({base, size});
        used_ = 0;
    }
    void* piece = chunks_.back().base + used_;
    used_ += bytes;
    given_ += bytes;
    return piece;
}

// madvise itself would round the length up: the page behind the end may be anybody's, and would become zeros.
void give_back(const void* begin, const void* end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = rounded((size_t)begin, page), last = (size_t)end / page * page;
    if (first < last) madvise((void*)first, last - first, MADV_DONTNEED);
}

}  // namespace native

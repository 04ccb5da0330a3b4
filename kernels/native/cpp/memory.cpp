#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

namespace native {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kPage = 4096;  // or a fraction of one
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

struct Reserved {
    std::mutex mutex;
    char *next = nullptr, *end = nullptr;
    std::thread populating;
    std::atomic<bool> enough{false};
};

// Never destroyed: a program that ends at once does not wait for the thread.
Reserved& reserved() {
    static Reserved* instance = new Reserved;
    return *instance;
}

// Writes nothing new, but as an atomic operation, since whoever took the page may be writing. Faults one by one:
// madvise(MADV_POPULATE_WRITE) would hold up every mmap of the process, of which imports make hundreds.
void populate(char* base, char* end) {
    const std::atomic<bool>& enough = reserved().enough;
    for (char* page = base; page < end && !enough; page += kPage) __atomic_fetch_or(page, 0, __ATOMIC_RELAXED);
}

// The next `size` bytes of the reserve; null: there are fewer, or they do not begin at `end` (if that is given).
char* take_reserved(size_t size, const char* end) {
    Reserved& r = reserved();
    std::lock_guard<std::mutex> lock(r.mutex);
    if ((size_t)(r.end - r.next) < size || (end && end != r.next)) return nullptr;
    char* base = r.next;
    r.next += size;
    return base;
}

}  // namespace

void reserve(size_t bytes) {
    Reserved& r = reserved();
    std::lock_guard<std::mutex> lock(r.mutex);
    size_t size = rounded(bytes, kHugePage);
    if (r.next || !(r.next = map_memory(size))) return;
    r.end = r.next + size;
    r.enough = false;
    try {
        r.populating = std::thread(populate, r.next, r.end);
    } catch (const std::exception&) {  // no thread to be had: the pages come when they are written
    }
}

void end_reserve() {
    Reserved& r = reserved();
    std::lock_guard<std::mutex> lock(r.mutex);
    r.enough = true;
    if (r.populating.joinable()) r.populating.join();
    if (r.next != r.end) munmap(r.next, (size_t)(r.end - r.next));
    r.next = r.end = nullptr;
}

Arena::~Arena() {
    end_reserve();  // its thread may be at work on these very pages
    for (const Chunk& chunk : chunks_) munmap(chunk.base, chunk.size);
}

// The reserve is taken bit by bit: what one arena does not need is left to the next.
bool Arena::extend(size_t bytes) {
    if (chunks_.empty()) return false;
    Chunk& last = chunks_.back();
    if (!take_reserved(bytes, last.base + last.size)) return false;
    last.size += bytes;
    return true;
}

void* Arena::allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    bytes = rounded(bytes, 64);
    size_t left = chunks_.empty() ? 0 : chunks_.back().size - used_;
    if (left < bytes && !extend(rounded(bytes - left, kHugePage))) {
        size_t size = rounded(bytes, kHugePage);
        char* base = take_reserved(size, nullptr);
        if (!base) {
            // Each chunk ends in a huge page that is not full, so of large arenas they are large.
            size_t more = given_ / 2 > kChunk ? rounded(given_ / 2, kHugePage) : kChunk;
            if (size < more && (base = map_memory(more))) size = more;
            else base = map_memory(size);
        }
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

// Memory that lives as long as its owner: large, aligned and zeroed, in huge pages where the system has them.
#pragma once

#include <cstddef>
#include <vector>

namespace native {

// Fetches into the second-level cache, from where the memory takes more requests at a time than for the first.
static inline __attribute__((always_inline)) void fetch_near(const void* p) { __builtin_prefetch(p, 0, 2); }

// Pieces are given out one after the other and freed together. Throws std::bad_alloc.
class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    void* allocate(size_t bytes);  // aligned to 64 bytes, zeroed
    size_t bytes() const { return given_; }

private:
    struct Chunk {
        char* base;
        size_t size;
    };
    bool extend(size_t bytes);

    std::vector<Chunk> chunks_;
    size_t used_ = 0;  // of the last chunk
    size_t given_ = 0;
};

// Memory that a thread of its own makes ready while the program still starts. Arenas made from now on take it
// first. From any thread.
void reserve(size_t bytes);

// Frees what no arena has taken. The end of any arena does the same.
void end_reserve();

// Takes the pages that lie whole between the two out of this process; they belong to a read-only file mapping, so
// whoever reads them again gets them back.
void give_back(const void* begin, const void* end);

}  // namespace native

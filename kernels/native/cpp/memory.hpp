// Memory that lives as long as its owner: large, aligned and zeroed, in huge pages where the system has them.
#pragma once

#include <cstddef>
#include <vector>

namespace native {

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
// first. Where the system cannot do that it is memory like any other. From any thread.
void reserve(size_t bytes);

// Frees what no arena has taken.
void end_reserve();

// Takes the pages of a read-only file mapping out of this process; whoever reads them again gets them back.
void give_back(const void* begin, size_t bytes);

}  // namespace native

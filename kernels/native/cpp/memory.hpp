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
    std::vector<Chunk> chunks_;
    size_t used_ = 0;  // of the last chunk
    size_t given_ = 0;
};

}  // namespace native

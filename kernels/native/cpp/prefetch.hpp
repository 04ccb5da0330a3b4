// Fetching weights, keys and values before they are due.
#pragma once

namespace native {

// Into the second-level cache, from where the memory takes more requests at a time than for the first.
static inline __attribute__((always_inline)) void fetch_near(const void* p) { __builtin_prefetch(p, 0, 2); }

// Bytes ahead of the products: into the second-level cache, and from there into the first. Found by measuring.
constexpr int kSecondLevelAhead = 10240, kFirstLevelAhead = 1280;

// Where several passes go over a tile each fetches its share of what follows, so that the memory is busy all the time.
struct Prefetch {
    int passes, wait;

    Prefetch(int pass, int passes) : passes(passes), wait(pass) {}

    __attribute__((always_inline)) void operator()(const void* p, int bytes) {
        if (wait-- > 0) return;
        wait = passes - 1;
        for (int i = 0; i < bytes; i += 64) {
            fetch_near((const char*)p + kSecondLevelAhead + i);
            __builtin_prefetch((const char*)p + kFirstLevelAhead + i);
        }
    }
};

}  // namespace native

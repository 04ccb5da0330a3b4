// Preloaded into a Python that runs the native library: the n-th allocation of C++ from now on, or the n-th thread,
// is refused. Only the test knows it; nothing in the library does.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <atomic>
#include <new>

static std::atomic<long> memory_left{-1}, threads_left{-1};  // negative: no end

extern "C" void refuse_memory_after(long count) { memory_left = count; }
extern "C" void refuse_threads_after(long count) { threads_left = count; }
extern "C" long memory_left_now() { return memory_left; }

static bool refused(std::atomic<long>& left) {
    if (left < 0) return false;
    return left.fetch_sub(1) <= 0 ? (left = 0, true) : false;
}

void* operator new(size_t size) {
    void* memory = refused(memory_left) ? nullptr : malloc(size ? size : 1);
    if (!memory) throw std::bad_alloc();
    return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
    return refused(memory_left) ? nullptr : malloc(size ? size : 1);
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* with) {
    using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    if (refused(threads_left)) return EAGAIN;
    return ((Create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, work, with);
}

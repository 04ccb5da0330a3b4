#include "mapped.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace native {
namespace {

// The handler may take no lock: it reads these. A place is free while `end` is 0, and known by the number that its
// latest mapping has: who still has the number of one before it is not told what the other has lost.
struct Mapping {
    std::atomic<uintptr_t> begin{0}, end{0};
    std::atomic<bool> lost{false};
    std::atomic<int> number{-1};
};
constexpr int kPlaces = 256;
constexpr int kTurns = 1 << 22;  // numbers of a place
Mapping mappings[kPlaces];
std::mutex mutex;  // of those who guard and unguard
int turn = 0;
bool installed = false;
struct sigaction previous;
uintptr_t page_size;

// Puts zeros where the file has nothing any more. A fault of any other kind goes where it went before.
void on_fault(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (Mapping& mapping : mappings) {
        const uintptr_t begin = mapping.begin.load(), end = mapping.end.load();
        if (at < begin || at >= end) continue;
        const uintptr_t page = at / page_size * page_size;
        void* zeros = mmap((void*)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (zeros == MAP_FAILED) break;
        mapping.lost.store(true);
        errno = saved;
        return;
    }
    errno = saved;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else {
        sigaction(SIGBUS, &previous, nullptr);  // the faulting instruction is run again, and ends the process
    }
}

bool install() {
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0;
}

}  // namespace

int guard(const void* begin, size_t size) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!installed && !(installed = install())) return -1;
    for (int place = 0; place < kPlaces; place++) {
        Mapping& mapping = mappings[place];
        if (mapping.end.load()) continue;
        turn = (turn + 1) % kTurns;
        const int number = turn * kPlaces + place;
        mapping.lost.store(false);
        mapping.number.store(number);
        mapping.begin.store((uintptr_t)begin);
        mapping.end.store((uintptr_t)begin + size);
        return number;
    }
    return -1;
}

// In this order: what a later mapping has lost has its number already.
bool is_lost(int number) {
    const Mapping& mapping = mappings[number % kPlaces];
    return mapping.lost.load() && mapping.number.load() == number;
}

void unguard(int number) {
    std::lock_guard<std::mutex> lock(mutex);
    mappings[number % kPlaces].end.store(0);
}

}  // namespace native

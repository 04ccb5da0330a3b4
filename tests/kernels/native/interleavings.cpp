// The team (kernels/native/cpp/team.cpp) with threads that stand still at any of their steps, as on a machine that has
// other things to do: every use of an atomic may take its time. Arguments: seed, jobs. Ends when all jobs are done as
// they should be; what is lost is waited for in vain.
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

static std::atomic<unsigned> seeds{0};

static void stand_still() {
    static thread_local std::minstd_rand random(seeds++);
    unsigned chance = (unsigned)random() % 1024;
    timespec moment{0, 50000};
    if (chance < 4) nanosleep(&moment, nullptr);
    else if (chance < 16) sched_yield();
}

namespace std {
template <class T>
struct halting : atomic<T> {
    using atomic<T>::atomic;
    T load(memory_order order = memory_order_seq_cst) const { return stand_still(), atomic<T>::load(order); }
    void store(T value, memory_order order = memory_order_seq_cst) { stand_still(), atomic<T>::store(value, order); }
    void operator=(T value) { store(value); }
    T fetch_add(T value, memory_order order) { return stand_still(), atomic<T>::fetch_add(value, order); }
    T fetch_sub(T value, memory_order order) { return stand_still(), atomic<T>::fetch_sub(value, order); }
    T exchange(T value, memory_order order) { return stand_still(), atomic<T>::exchange(value, order); }
    bool compare_exchange_weak(T& before, T after, memory_order order) {
        return stand_still(), atomic<T>::compare_exchange_weak(before, after, order);
    }
};
}  // namespace std

#define atomic halting
#include "team.cpp"
#undef atomic

struct Counted : native::Job {
    int threads, failing = -1;
    std::vector<std::vector<std::atomic<int>>> begun;
    std::atomic<int> now{-1};
    std::atomic<bool> wrong{false};

    Counted(std::minstd_rand& random, int threads) : threads(threads) {
        for (unsigned i = 0, n = 1 + (unsigned)random() % 3; i < n; i++)
            begun.emplace_back((unsigned)random() % (unsigned)(2 * threads + 2));
        if (random() % 16 == 0) failing = (int)((unsigned)random() % begun.size());
    }
    int stages() const override { return (int)begun.size(); }
    int tasks(int stage) override { return (int)begun[(size_t)(now = stage)].size(); }
    void run(int stage, int task, int worker) override {
        if (stage != now || worker >= threads) wrong = true;
        begun[(size_t)stage][(size_t)task]++;
        if (stage == failing) throw std::runtime_error("as asked");
    }
    // Whether each task was begun once, or never after a failure.
    bool right(bool failed) const {
        for (const auto& stage : begun)
            for (const auto& count : stage)
                if (count > 1 || (count == 0 && !failed)) return false;
        return !wrong;
    }
};

static void calls(unsigned seed, int jobs) {
    std::minstd_rand random(seed);
    for (int threads = 1; jobs > 0; jobs--) {
        if (random() % 4 == 0) threads = 1 + (int)((unsigned)random() % 6);
        Counted job(random, threads);
        bool failed = false;
        try {
            native::Team::instance().run(job, threads);
        } catch (const std::runtime_error&) {
            failed = true;
        }
        if (!job.right(failed)) {
            fprintf(stderr, "a task was begun twice, never, or by a thread that should sleep\n");
            _Exit(1);
        }
        if (random() % 256 == 0) native::Team::instance().dismiss();
    }
}

int main(int, char** arguments) {
    unsigned seed = (unsigned)atoi(arguments[1]);
    int jobs = atoi(arguments[2]);
    seeds = seed;
    std::thread other(calls, seed + 1, jobs);
    calls(seed + 2, jobs);
    other.join();
    _Exit(0);
}

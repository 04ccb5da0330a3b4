#include "team.hpp"

#include <system_error>

#if defined(__linux__)
#include <pthread.h>
#endif

namespace native {
namespace {

constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (1u << kTaskBits) - 1;
constexpr int kSpins = 4000;  // 40 to 200 microseconds, by processor, before a thread goes to sleep

int tasks_of(uint64_t cursor) { return (int)(cursor >> kTaskBits & kTaskMask); }
int claimed_of(uint64_t cursor) { return (int)(cursor & kTaskMask); }
uint64_t stage_of(uint64_t cursor) { return cursor >> 2 * kTaskBits; }

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Team& Team::instance() {
    static Team* team = new Team;
    return *team;
}

void Team::dismiss() {
    std::lock_guard<std::mutex> running(run_mutex_);
    {
        std::lock_guard<std::mutex> lock(sleep_mutex_);
        quit_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    quit_ = false;
}

// Fewer threads than asked for are no error: the caller alone can do a job.
void Team::hire(int threads) {
    if (limit_.load(std::memory_order_relaxed) != threads) {
        std::lock_guard<std::mutex> lock(sleep_mutex_);
        limit_.store(threads, std::memory_order_relaxed);
        wake_.notify_all();
    }
    try {
        while ((int)threads_.size() < threads - 1) {
            int worker = (int)threads_.size() + 1;
            threads_.emplace_back([this, worker] { work(worker); });
        }
    } catch (const std::system_error&) {
    }
}

void Team::run(Job& job, int threads) {
    std::lock_guard<std::mutex> lock(run_mutex_);
    hire(threads);
    job_ = &job;
    stage_ = -1;
    running_.store(true, std::memory_order_relaxed);
    advance(0);
    uint64_t cursor = cursor_.load(std::memory_order_acquire);
    while (running_.load(std::memory_order_acquire)) {
        if (!claim_and_run(cursor, 0)) cursor = wait_beyond(cursor);
        else cursor = cursor_.load(std::memory_order_acquire);
    }
}

void Team::work(int worker) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "kernel-team");
#endif
    uint64_t cursor = cursor_.load(std::memory_order_acquire);
    while (!quit_.load(std::memory_order_relaxed)) {
        if (worker >= limit_.load(std::memory_order_relaxed)) {
            std::unique_lock<std::mutex> lock(sleep_mutex_);
            wake_.wait(lock, [&] { return worker < limit_.load() || quit_.load(); });
        }
        if (claim_and_run(cursor, worker)) cursor = cursor_.load(std::memory_order_acquire);
        else cursor = wait_beyond(cursor);
    }
}

// Takes tasks of the stage in `cursor` until none is left; false if there was none.
bool Team::claim_and_run(uint64_t cursor, int worker) {
    uint64_t stage = stage_of(cursor);
    int finished = 0, tasks = tasks_of(cursor);
    // Until this thread reports its tasks the stage cannot change, but before its first one it can.
    while (stage_of(cursor) == stage && claimed_of(cursor) < tasks) {
        if (!cursor_.compare_exchange_weak(cursor, cursor + 1, std::memory_order_acq_rel)) continue;
        job_->run(stage_, claimed_of(cursor), worker);
        finished++;
        cursor = cursor_.load(std::memory_order_acquire);
    }
    if (finished == 0) return false;
    if (done_.fetch_add(finished, std::memory_order_acq_rel) + finished == tasks) advance(worker);
    return true;
}

// Called by whoever did the last task of a stage: all others only watch the cursor now. A stage of one task is not
// worth telling them.
void Team::advance(int worker) {
    done_.store(0, std::memory_order_relaxed);
    while (++stage_ < job_->stages()) {
        int tasks = job_->tasks(stage_);
        if (tasks > 1) return publish(tasks);
        if (tasks == 1) job_->run(stage_, 0, worker);
    }
    running_.store(false, std::memory_order_release);
    publish(0);
}

void Team::publish(int tasks) {
    uint64_t next = (stage_of(cursor_.load(std::memory_order_relaxed)) + 1) << 2 * kTaskBits;
    cursor_.store(next | (uint64_t)tasks << kTaskBits, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard<std::mutex> lock(sleep_mutex_); }  // a thread about to sleep has checked the cursor or will
    wake_.notify_all();
}

// Waits for a stage after the one in `seen` and returns its cursor.
uint64_t Team::wait_beyond(uint64_t seen) {
    for (int spin = 0; spin < kSpins; spin++) {
        uint64_t cursor = cursor_.load(std::memory_order_acquire);
        if (stage_of(cursor) != stage_of(seen) || quit_.load(std::memory_order_relaxed)) return cursor;
        pause();
    }
    std::unique_lock<std::mutex> lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] {
        return stage_of(cursor_.load(std::memory_order_seq_cst)) != stage_of(seen) || quit_.load();
    });
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return cursor_.load(std::memory_order_acquire);
}

}  // namespace native

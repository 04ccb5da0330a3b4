#include "team.hpp"

#include <pthread.h>

#include <utility>

#include "memory.hpp"

namespace native {
namespace {

constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (1u << kTaskBits) - 1;
constexpr int kMostClaims = (1 << kTaskBits) - 1;
constexpr uint64_t kStageMask = (1u << 24) - 1;
constexpr uint64_t kOver = kStageMask + 1;  // added to the number of a stage without tasks: the job is done
constexpr int kSpins = 40000;  // 50 to 200 microseconds, by processor, before a thread goes to sleep
// Looks for each pause. A hypervisor takes pauses that follow each other for a wait in vain, and stops the CPU a while.
constexpr int kPause = 100;

uint64_t packed(uint64_t stage, int begin, int end) {
    return stage << 2 * kTaskBits | (uint64_t)end << kTaskBits | (uint64_t)begin;
}
int end_of(uint64_t tasks) { return (int)(tasks >> kTaskBits & kTaskMask); }
int begin_of(uint64_t tasks) { return (int)(tasks & kTaskMask); }
uint64_t stage_of(uint64_t tasks) { return tasks >> 2 * kTaskBits; }

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

// A hint: the memory need not exist any more.
void Ahead::fetch() {
    constexpr size_t kAtOnce = 256;  // little enough to see soon that the wait is over
    size_t count = bytes < kAtOnce ? bytes : kAtOnce;
    for (const void*& begin : begins) {
        if (!begin) continue;
        for (size_t i = 0; i < count; i += 64) fetch_near((const char*)begin + i);
        begin = (const char*)begin + count;
    }
    bytes -= count;
}

Team& Team::instance() {
    static Team* team = new Team;
    // A process that is forked has none of the threads, and whoever held a lock is not there to let go of it.
    static const int told = pthread_atfork(nullptr, nullptr, [] { team = new Team; });
    (void)told;
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
    most_ = kMostThreads;
    quit_ = false;
}

// Fewer threads than asked for are no error: the caller alone can do a job. Returns how many there are, the caller
// among them.
int Team::hire(int threads) {
    threads = threads < most_ ? threads : most_;
    try {
        while ((int)threads_.size() < threads - 1) {
            int worker = (int)threads_.size() + 1;
            threads_.emplace_back([this, worker] { work(worker); });
        }
    } catch (const std::exception&) {  // no thread, or no memory for one; not asked again for each job
        most_ = threads = (int)threads_.size() + 1;
    }
    return threads;
}

void Team::run(Job& job, int threads) {
    std::lock_guard<std::mutex> lock(run_mutex_);
    threads = hire(threads > 1 ? threads : 1);
    if (limit_.load(std::memory_order_relaxed) != threads) {
        std::lock_guard<std::mutex> sleeping(sleep_mutex_);
        limit_.store(threads, std::memory_order_relaxed);
        wake_.notify_all();
    }
    job_ = &job;
    stage_ = -1;
    failed_.store(false, std::memory_order_relaxed);
    advance(0);
    Ahead ahead;
    uint64_t stage = latest_.load(std::memory_order_acquire);
    // The number alone says that the job is over: it is the last thing of the job that another thread writes, which
    // would else go on writing into the next one.
    while (!(stage & kOver)) {
        if (claim_and_run(stage, 0, ahead)) stage = latest_.load(std::memory_order_acquire);
        else stage = wait_beyond(stage, ahead);
    }
    if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::work(int worker) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "kernel-team");
#endif
    Ahead ahead;
    uint64_t stage = latest_.load(std::memory_order_acquire);
    while (!quit_.load(std::memory_order_relaxed)) {
        if (worker >= limit_.load(std::memory_order_relaxed)) {
            std::unique_lock<std::mutex> lock(sleep_mutex_);
            wake_.wait(lock, [&] { return worker < limit_.load() || quit_.load(); });
        }
        if (claim_and_run(stage, worker, ahead)) stage = latest_.load(std::memory_order_acquire);
        else stage = wait_beyond(stage, ahead);
    }
}

// A task of the stage that nobody else has: the next of the worker's share, or the last of another's; -1 if none is
// left.
int Team::claim(uint64_t stage, int worker) {
    int threads = limit_.load(std::memory_order_relaxed);
    for (int i = 0; i < threads; i++) {
        std::atomic<uint64_t>& share = shares_[(worker + i) % threads].tasks;
        uint64_t tasks = share.load(std::memory_order_acquire);
        while (stage_of(tasks) == stage && begin_of(tasks) < end_of(tasks)) {
            int begin = begin_of(tasks), end = end_of(tasks), task = i == 0 ? begin++ : --end;
            if (share.compare_exchange_weak(tasks, packed(stage, begin, end), std::memory_order_acq_rel)) return task;
        }
    }
    return -1;
}

// Takes tasks of the stage until none is left; false if there was none.
bool Team::claim_and_run(uint64_t stage, int worker, Ahead& ahead) {
    int finished = 0;
    // Until this thread reports its tasks the stage cannot change, but before its first one it can.
    for (int claimed; (claimed = claim(stage, worker)) >= 0; finished++) run_tasks(claimed, worker);
    if (finished == 0) return false;
    ahead = job_->ahead(stage_, worker);
    int claims = claims_;
    if (done_.fetch_add(finished, std::memory_order_acq_rel) + finished == claims) advance(worker);
    return true;
}

void Team::run_tasks(int claimed, int worker) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
        int64_t begin = (int64_t)claimed * per_claim_, end = begin + per_claim_ < tasks_ ? begin + per_claim_ : tasks_;
        for (int64_t task = begin; task < end; task++) job_->run(stage_, (int)task, worker);
    } catch (...) {
        fail();
    }
}

// The stage can't end before the thread that failed has reported its task, so whoever ends it sees the failure.
void Team::fail() {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
}

// Of the stage; -1: the job has failed.
int Team::count_tasks() {
    if (failed_.load(std::memory_order_relaxed)) return -1;
    try {
        return job_->tasks(stage_);
    } catch (...) {
        fail();
        return -1;
    }
}

// Called by whoever did the last task of a stage: all others only watch for the next one. A stage of one task is not
// worth telling them.
void Team::advance(int worker) {
    done_.store(0, std::memory_order_relaxed);
    while (++stage_ < job_->stages()) {
        tasks_ = count_tasks();
        if (tasks_ < 0) break;
        per_claim_ = tasks_ / kMostClaims + 1;
        claims_ = (tasks_ + per_claim_ - 1) / per_claim_;
        if (claims_ > 1) return publish(claims_);
        if (claims_ == 1) run_tasks(0, worker);
    }
    publish(0);
}

// No claims: the job is over.
void Team::publish(int claims) {
    uint64_t stage = (latest_.load(std::memory_order_relaxed) + 1) & kStageMask;
    if (claims == 0) stage |= kOver;
    int threads = claims > 0 ? limit_.load(std::memory_order_relaxed) : 0;
    for (int i = 0; i < threads; i++)
        shares_[i].tasks.store(packed(stage, share(i, threads, claims), share(i + 1, threads, claims)),
                               std::memory_order_relaxed);
    latest_.store(stage, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard<std::mutex> lock(sleep_mutex_); }  // a thread about to sleep has looked at the stage or will
    wake_.notify_all();
}

// Waits for a stage after the given one and returns its number.
uint64_t Team::wait_beyond(uint64_t stage, Ahead ahead) {
    for (int spin = 1; spin <= kSpins; spin++) {
        uint64_t latest = latest_.load(std::memory_order_acquire);
        if (latest != stage || quit_.load(std::memory_order_relaxed)) return latest;
        ahead.fetch();
        if (spin % kPause == 0) pause();
    }
    std::unique_lock<std::mutex> lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return latest_.load(std::memory_order_seq_cst) != stage || quit_.load(); });
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return latest_.load(std::memory_order_acquire);
}

}  // namespace native

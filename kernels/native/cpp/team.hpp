// The thread team of the process. All models share it; one job runs at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace native {

// Memory that a thread will read soon: `bytes` from each beginning that is not null.
struct Ahead {
    const void* begins[2] = {nullptr, nullptr};
    size_t bytes = 0;

    void fetch();  // the next little of it
};

constexpr int kTasksPerThread = 8;  // of a stage: enough that a thread that falls behind does not matter much

// Work in stages; the tasks of a stage run in any order on any thread, a stage starts when the one before is done.
// What a task or the count of a stage's tasks throws ends the job, on whatever thread: the tasks that were not begun
// are left out.
class Job {
public:
    virtual ~Job() = default;
    virtual int stages() const = 0;
    virtual int tasks(int stage) = 0;  // 0 skips the stage
    virtual void run(int stage, int task, int worker) = 0;
    // What a worker can fetch while it waits for the others to end this stage.
    virtual Ahead ahead(int /*stage*/, int /*worker*/) const { return {}; }
};

// Every thread has a share of a stage's tasks, neighbours that it takes in order, so that what it fetches ahead is its
// own; a thread without tasks takes the last one of another. A stage is over when its tasks are, not when every thread
// has looked in: a thread that the system has put aside holds up at most the one task it has claimed.
class Team {
public:
    static constexpr int kMostThreads = 1024;

    // Where the share of a worker begins, of so many tasks.
    static int share(int worker, int threads, int tasks) { return (int)((int64_t)tasks * worker / threads); }

    static Team& instance();  // of this process; never destroyed: a thread may still run when it exits

    // Runs a job on the calling thread and up to threads - 1 others: as many as the system gives. Callers queue up.
    // Throws the first exception of the job.
    void run(Job& job, int threads);

    // Ends the threads; the next job starts new ones.
    void dismiss();

private:
    int hire(int threads);
    void work(int worker);
    int claim(uint64_t stage, int worker);
    bool claim_and_run(uint64_t stage, int worker, Ahead& ahead);
    void run_tasks(int claimed, int worker);
    int count_tasks();
    void fail();
    void advance(int worker);
    void publish(int claims);
    uint64_t wait_beyond(uint64_t stage, Ahead ahead);

    // Number of the stage (24 bits) | end (20 bits) | begin (20 bits) of the tasks that nobody has claimed. A claim is
    // a compare-and-swap, so one meant for an older stage fails.
    struct alignas(64) Share {
        std::atomic<uint64_t> tasks{0};
    };

    alignas(64) std::atomic<uint64_t> latest_{0};  // number of the stage that threads may claim tasks of, and whether it is over
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<int> sleepers_{0};  // threads to wake for the next stage
    std::atomic<int> limit_{0};      // threads that take part in the latest job; the others sleep
    Job* job_ = nullptr;             // written before the stage is published, read after a task of it is claimed
    int stage_ = 0, tasks_ = 0;      // likewise
    int claims_ = 0, per_claim_ = 1; // likewise: what threads claim are runs of so many tasks
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;     // written by the first that fails, read when the job is over
    std::mutex run_mutex_, sleep_mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
    int most_ = kMostThreads;        // with the caller; fewer once the system has refused one
    std::atomic<bool> quit_{false};
    Share shares_[kMostThreads];
};

}  // namespace native

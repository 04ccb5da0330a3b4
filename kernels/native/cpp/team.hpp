// The thread team of the process. All models share it; one job runs at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace native {

// Work in stages; the tasks of a stage run in any order on any thread, a stage starts when the one before is done.
class Job {
public:
    virtual ~Job() = default;
    virtual int stages() const = 0;
    virtual int tasks(int stage) = 0;  // at most Team::kMostTasks; 0 skips the stage
    virtual void run(int stage, int task, int worker) = 0;
};

// Threads claim tasks from one counter, and a stage is over when its tasks are, not when every thread has looked in:
// a thread that the system has put aside holds up at most the one task it has claimed.
class Team {
public:
    static constexpr int kMostTasks = (1 << 20) - 1;

    static Team& instance();  // never destroyed: a thread may still run when the process exits

    // Runs a job on the calling thread and up to threads - 1 others. Callers queue up.
    void run(Job& job, int threads);

    // Ends the threads; the next job starts new ones.
    void dismiss();

private:
    void hire(int threads);
    void work(int worker);
    bool claim_and_run(uint64_t cursor, int worker);
    void advance(int worker);
    void publish(int tasks);
    uint64_t wait_beyond(uint64_t seen);

    // Sequence number of the stage (24 bits) | its tasks (20 bits) | tasks claimed (20 bits). A claim is a
    // compare-and-swap, so one meant for an older stage fails.
    alignas(64) std::atomic<uint64_t> cursor_{0};
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<int> sleepers_{0};  // threads to wake for the next stage
    std::atomic<int> limit_{0};      // threads that take part in the latest job; the others sleep
    std::atomic<bool> running_{false};
    Job* job_ = nullptr;             // written before the stage is published, read after a task of it is claimed
    int stage_ = 0;
    std::mutex run_mutex_, sleep_mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
    std::atomic<bool> quit_{false};
};

}  // namespace native

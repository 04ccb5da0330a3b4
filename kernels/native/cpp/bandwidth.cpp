#include "bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "memory.hpp"
#include "team.hpp"

namespace native {
namespace {

constexpr size_t kPiece = 256 << 10;
constexpr int kReads = 7;

class Reading : public Job {
public:
    Reading(const Kernels& kernels, const char* data, size_t bytes) : kernels_(kernels), data_(data), bytes_(bytes) {}

    int stages() const override { return 1; }
    int tasks(int) override { return (int)((bytes_ + kPiece - 1) / kPiece); }

    void run(int, int task, int) override {
        size_t begin = (size_t)task * kPiece, end = std::min(begin + kPiece, bytes_);
        seen_.fetch_or(kernels_.read(data_ + begin, end - begin), std::memory_order_relaxed);
    }

private:
    const Kernels& kernels_;
    const char* data_;
    size_t bytes_;
    std::atomic<int32_t> seen_{0};
};

}  // namespace

double read_bandwidth(const Kernels& kernels, size_t bytes, int threads) {
    Arena arena;
    char* data = (char*)arena.allocate(bytes);
    memset(data, 1, bytes);  // or the system would lend one page of zeros for all
    double best = 0;
    for (int i = 0; i < kReads; i++) {
        Reading job(kernels, data, bytes);
        auto start = std::chrono::steady_clock::now();
        Team::instance().run(job, threads);
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::max(best, (double)bytes / taken.count());
    }
    return best;
}

}  // namespace native

#include "bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "memory.hpp"
#include "team.hpp"

namespace native {
namespace {

constexpr size_t kPiece = 256 << 10;
constexpr int kReads = 7;

class Reading : public Job {
public:
    Reading(const char* data, size_t bytes) : data_(data), bytes_(bytes) {}

    int stages() const override { return 1; }
    int tasks(int) override { return (int)((bytes_ + kPiece - 1) / kPiece); }

    void run(int, int task, int) override {
        size_t begin = (size_t)task * kPiece, end = std::min(begin + kPiece, bytes_);
        uint64_t words[8] = {0};
        for (size_t i = begin; i + sizeof words <= end; i += sizeof words) {
            uint64_t line[8];
            memcpy(line, data_ + i, sizeof line);
            for (int j = 0; j < 8; j++) words[j] |= line[j];
        }
        uint64_t all = 0;
        for (uint64_t word : words) all |= word;
        seen_.fetch_or(all, std::memory_order_relaxed);  // or the compiler would drop the reads
    }

private:
    const char* data_;
    size_t bytes_;
    std::atomic<uint64_t> seen_{0};
};

}  // namespace

double read_bandwidth(size_t bytes, int threads) {
    Arena arena;
    char* data = (char*)arena.allocate(bytes);
    memset(data, 1, bytes);  // or the system would lend one page of zeros for all
    double best = 0;
    for (int i = 0; i < kReads; i++) {
        Reading job(data, bytes);
        auto start = std::chrono::steady_clock::now();
        Team::instance().run(job, threads);
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::max(best, (double)bytes / taken.count());
    }
    return best;
}

}  // namespace native

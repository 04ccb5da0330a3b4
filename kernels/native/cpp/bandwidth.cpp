#include "bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "team.hpp"

namespace native {
namespace {

constexpr size_t kPiece = 256 << 10;
constexpr int kReads = 7;
constexpr double kSeconds = 0.2;  // no further read is begun after that

struct Piece {
    const char* data;
    size_t bytes;
};

class Reading : public Job {
public:
    Reading(const Kernels& kernels, const std::vector<Piece>& pieces) : kernels_(kernels), pieces_(pieces) {}

    int stages() const override { return 1; }
    int tasks(int) override { return (int)pieces_.size(); }

    void run(int, int task, int) override {
        const Piece& piece = pieces_[(size_t)task];
        seen_.fetch_or(kernels_.read(piece.data, piece.bytes), std::memory_order_relaxed);
    }

private:
    const Kernels& kernels_;
    const std::vector<Piece>& pieces_;
    std::atomic<int32_t> seen_{0};
};

}  // namespace

double read_bandwidth(const Kernels& kernels, const std::vector<std::unique_ptr<Matrix>>& matrices, size_t bytes,
                      int threads) {
    std::vector<Piece> pieces;
    size_t total = 0;
    for (const auto& matrix : matrices)
        for (const Segment& segment : matrix->segments()) {
            size_t size = std::min(segment.tile_bytes * (size_t)segment.tiles, bytes - total);
            for (size_t begin = 0; begin < size; begin += kPiece)
                pieces.push_back({(const char*)segment.data + begin, std::min(kPiece, size - begin)});
            total += size;
        }
    if (!total) return 0;
    double best = 0, spent = 0;
    for (int i = 0; i < kReads && spent < kSeconds; i++) {
        Reading job(kernels, pieces);
        auto start = std::chrono::steady_clock::now();
        Team::instance().run(job, threads);
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::max(best, (double)total / taken.count());
        spent += taken.count();
    }
    return best;
}

}  // namespace native

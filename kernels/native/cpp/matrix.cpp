#include "matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "kernels.hpp"
#include "team.hpp"

namespace native {
namespace {

template <class Tile>
int tiles_along(int columns) {
    return divided(columns, Tile::kColumns);
}

template <class Tile>
void read_lane(const Tile* tiles, int lane, int columns, float* out) {
    for (int k = 0; k < columns; k++) {
        const Tile& tile = tiles[k / Tile::kColumns];
        if constexpr (Tile::kPacked) {
            int group = k % Tile::kColumns / kGroup, run = k % Tile::kColumns / Tile::kRun, i = k % kGroup;
            int integer = tile.integer(group, i / 4 * 64 + 4 * lane + i % 4) + Tile::kLow;
            out[k] = (float)integer * tile.scale(0, run, lane);
            if (Tile::kMinima) out[k] += tile.scale(1, run, lane);
        } else if constexpr (Tile::kFormat == Format::f32) {
            out[k] = tile.values[lane];
        } else {
            out[k] = Tile::kFormat == Format::f16 ? float_of_half(tile.values[lane]) : float_of_bf16(tile.values[lane]);
        }
    }
}

// The pages that hold nothing but the source: from its first code to its last one, whatever the strides.
void give_back_codes(const Source& source, int columns) {
    if (source.rows < 1 || source.codes_row < 0 || source.codes_group < 0) return;
    if (source.stored >= 0) return give_back(source.codes, source.codes + source.rows * source.codes_row);
    int64_t behind = with_tile((Format)source.format, [&](auto* tile) {
        using Tile = std::remove_pointer_t<decltype(tile)>;
        int64_t groups = Tile::kPacked ? groups_of(columns) : columns;
        return (groups - 1) * source.codes_group + Tile::kRowBytes;
    });
    give_back(source.codes, source.codes + (source.rows - 1) * source.codes_row + behind);
}

}  // namespace

// One task fills a few tiles; rows past the end of the segment stay zero. All matrices are one stage: threads that the
// system puts aside hold up its end, not that of every matrix, of which experts are thousands.
class Repack : public Job {
public:
    Repack(const Kernels& kernels, const std::vector<Matrix*>& matrices)
        : kernels_(kernels), matrices_(matrices), states_(matrices.size()) {
        for (size_t i = 0; i < matrices_.size(); i++) {
            first_.push_back(tasks_);
            states_[i].left = divided(matrices_[i]->tiles_, kTilesPerTask);
            tasks_ += states_[i].left;
        }
    }

    int stages() const override { return 1; }
    int tasks(int) override { return tasks_; }

    void run(int, int task, int) override {
        size_t i = (size_t)(std::upper_bound(first_.begin(), first_.end(), task) - first_.begin()) - 1;
        Matrix& matrix = *matrices_[i];
        int begin = (task - first_[i]) * kTilesPerTask, end = std::min(begin + kTilesPerTask, matrix.tiles_);
        size_t s = 0;
        bool held = true;
        for (int tile = begin; tile < end; tile++) {
            while (tile >= matrix.segments_[s].tile_first + matrix.segments_[s].tiles) s++;
            const Segment& segment = matrix.segments_[s];
            int here = tile - segment.tile_first;
            held &= kernels_.repack(matrix.sources_[s], (int64_t)here * kLanes, matrix.columns_,
                                    const_cast<uint8_t*>(segment.data) + here * segment.tile_bytes);
        }
        if (!held) states_[i].held = false;
        if (--states_[i].left > 0) return;
        for (const Source& source : matrix.sources_)
            if (source.mapped) give_back_codes(source, matrix.columns_);
        matrix.held_ = states_[i].held;
    }

private:
    static constexpr int kTilesPerTask = 4;

    struct State {
        std::atomic<int> left{0};
        std::atomic<bool> held{true};
    };

    const Kernels& kernels_;
    std::vector<Matrix*> matrices_;
    std::vector<State> states_;
    std::vector<int> first_;  // task of each matrix
    int tasks_ = 0;
};

Matrix::Matrix(const Source* sources, int count, int columns, Arena& arena)
    : columns_(columns), sources_(sources, sources + count) {
    for (int i = 0; i < count; i++) {
        Segment segment;
        segment.format = (Format)sources[i].format;
        segment.first = rows_;
        segment.rows = (int)sources[i].rows;
        segment.factor = (float)sources[i].factor;
        segment.tile_first = tiles_;
        segment.tiles = divided(segment.rows, kLanes);
        segment.tile_bytes = with_tile(segment.format, [&](auto* tile) {
            return sizeof *tile * (size_t)tiles_along<std::remove_pointer_t<decltype(tile)>>(columns);
        });
        segment.data = (const uint8_t*)arena.allocate(segment.tile_bytes * (size_t)segment.tiles);
        segments_.push_back(segment);
        rows_ += segment.rows;
        tiles_ += segment.tiles;
    }
}

void Matrix::fill(const Kernels& kernels, const std::vector<std::unique_ptr<Matrix>>& matrices, int threads) {
    std::vector<Matrix*> waiting;
    for (const auto& matrix : matrices)
        if (!matrix->sources_.empty()) waiting.push_back(matrix.get());
    if (waiting.empty()) return;
    Repack job(kernels, waiting);
    Team::instance().run(job, threads);
    for (Matrix* matrix : waiting) matrix->sources_.clear();
}

void Matrix::row(int index, float* out) const {
    size_t s = 0;
    while (index >= segments_[s].first + segments_[s].rows) s++;
    const Segment& segment = segments_[s];
    int lane = (index - segment.first) % kLanes;
    const uint8_t* data = segment.data + (size_t)((index - segment.first) / kLanes) * segment.tile_bytes;
    with_tile(segment.format, [&](auto* tile) { read_lane((decltype(tile))data, lane, columns_, out); });
    if (segment.factor != 1.0f)
        for (int k = 0; k < columns_; k++) out[k] *= segment.factor;
}

}  // namespace native

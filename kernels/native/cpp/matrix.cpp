#include "matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "team.hpp"

namespace native {
namespace {

template <class Tile>
int tiles_along(int columns) {
    return (columns + Tile::kColumns - 1) / Tile::kColumns;
}

// A row of the source becomes a lane of its tiles. Canonical codes of four bits have that of input i beside that of
// i + 16. For a plain format codes_group is the step from one column to the next. False: a scale is not finite, or a
// value that must be.
template <class Tile>
bool fill_lane(Tile* tiles, const Source& source, int64_t row, int lane, int columns) {
    const uint8_t* codes = source.codes + row * source.codes_row;
    if constexpr (Tile::kPacked) {
        for (int k = 0; k < groups_of(columns); k++, codes += source.codes_group) {
            Tile& tile = tiles[k / Tile::kGroups];
            if constexpr (Tile::kBits == 8) {
                uint8_t values[kGroup];
                for (int i = 0; i < kGroup; i++) values[i] = codes[i] ^ 0x80;
                tile.set_codes(k % Tile::kGroups, lane, values);
            } else {
                tile.set_packed(k % Tile::kGroups, lane, codes);
            }
        }
        bool finite = true;
        const uint8_t* numbers[] = {source.scales + row * source.scales_row, source.minima + row * source.minima_row};
        const int64_t steps[] = {source.scales_group, source.minima_group};
        for (int which = 0; which < Tile::kNumbers; which++)
            for (int run = 0; run < (columns + Tile::kRun - 1) / Tile::kRun; run++) {
                constexpr uint32_t top = Tile::kKind.bits == 16 ? 0x7c00 : 0x7f800000;
                uint32_t bits = 0;
                memcpy(&bits, numbers[which] + run * steps[which], Tile::kKind.bits / 8);
                finite &= (bits & top) != top;
                tiles[run / Tile::kRuns].set_scale(which, run % Tile::kRuns, lane, bits);
            }
        return finite;
    } else {
        using Value = typename Tile::Value;
        constexpr uint32_t top = Tile::kFormat == Format::f32 ? 0x7f800000 : Tile::kFormat == Format::f16 ? 0x7c00 : 0x7f80;
        bool finite = true;
        for (int k = 0; k < columns; k++, codes += source.codes_group) {
            uint32_t bits = 0;
            memcpy(&bits, codes, sizeof(Value));
            finite &= (bits & top) != top;
            memcpy(&tiles[k].values[lane], codes, sizeof(Value));
        }
        return finite || !source.finite;
    }
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
    explicit Repack(const std::vector<Matrix*>& matrices) : matrices_(matrices), states_(matrices.size()) {
        for (size_t i = 0; i < matrices_.size(); i++) {
            first_.push_back(tasks_);
            states_[i].left = (matrices_[i]->tiles_ + kTilesPerTask - 1) / kTilesPerTask;
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
            held &= fill(matrix, s, tile - matrix.segments_[s].tile_first);
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

    bool fill(const Matrix& matrix, size_t s, int tile) {
        const Segment& segment = matrix.segments_[s];
        const Source& source = matrix.sources_[s];
        int columns = matrix.columns_;
        uint8_t* data = const_cast<uint8_t*>(segment.data) + tile * segment.tile_bytes;
        bool held = true;
        for (int lane = 0; lane < kLanes && tile * kLanes + lane < segment.rows; lane++) {
            int64_t row = (int64_t)tile * kLanes + lane;
            held &= source.stored < 0
                        ? with_tile(segment.format,
                                    [&](auto* tiles) {
                                        return fill_lane((decltype(tiles))data, source, row, lane, columns);
                                    })
                        : fill_from_blocks((Stored)source.stored, source.codes + row * source.codes_row, columns, data,
                                           lane);
        }
        return held;
    }

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
        segment.tiles = (segment.rows + kLanes - 1) / kLanes;
        segment.tile_bytes = with_tile(segment.format, [&](auto* tile) {
            return sizeof *tile * (size_t)tiles_along<std::remove_pointer_t<decltype(tile)>>(columns);
        });
        segment.data = (const uint8_t*)arena.allocate(segment.tile_bytes * (size_t)segment.tiles);
        segments_.push_back(segment);
        rows_ += segment.rows;
        tiles_ += segment.tiles;
    }
}

void Matrix::fill(const std::vector<std::unique_ptr<Matrix>>& matrices, int threads) {
    std::vector<Matrix*> waiting;
    for (const auto& matrix : matrices)
        if (!matrix->sources_.empty()) waiting.push_back(matrix.get());
    if (waiting.empty()) return;
    Repack job(waiting);
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

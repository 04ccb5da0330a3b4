#include "matrix.hpp"

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
// i + 16. For a plain format codes_group is the step from one column to the next. False: a scale is not finite.
template <class Tile>
bool fill_lane(Tile* tiles, const Source& source, int64_t row, int lane, int columns) {
    const uint8_t* codes = source.codes + row * source.codes_row;
    if constexpr (Tile::kPacked) {
        for (int k = 0; k < groups_of(columns); k++, codes += source.codes_group) {
            uint8_t values[kGroup];
            for (int i = 0; i < kGroup; i++)
                values[i] = Tile::kBits == 8 ? codes[i] ^ 0x80 : i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
            tiles[k / Tile::kGroups].set_codes(k % Tile::kGroups, lane, values);
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
        for (int k = 0; k < columns; k++, codes += source.codes_group)
            memcpy(&tiles[k].values[lane], codes, sizeof tiles[k].values[lane]);
        return true;
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

// One task fills a few tiles; rows past the end of the segment stay zero.
class Repack : public Job {
public:
    Repack(const std::vector<Source>& sources, const std::vector<Segment>& segments, int tiles, int columns)
        : sources_(sources), segments_(segments), tiles_(tiles), columns_(columns) {}

    bool held() const { return held_; }

    int stages() const override { return 1; }
    int tasks(int) override { return (tiles_ + kTilesPerTask - 1) / kTilesPerTask; }

    void run(int, int task, int) override {
        int end = (task + 1) * kTilesPerTask < tiles_ ? (task + 1) * kTilesPerTask : tiles_;
        size_t s = 0;
        for (int tile = task * kTilesPerTask; tile < end; tile++) {
            while (tile >= segments_[s].tile_first + segments_[s].tiles) s++;
            fill(segments_[s], sources_[s], tile - segments_[s].tile_first);
        }
    }

private:
    static constexpr int kTilesPerTask = 4;

    void fill(const Segment& segment, const Source& source, int tile) {
        uint8_t* data = const_cast<uint8_t*>(segment.data) + tile * segment.tile_bytes;
        for (int lane = 0; lane < kLanes && tile * kLanes + lane < segment.rows; lane++) {
            int64_t row = (int64_t)tile * kLanes + lane;
            bool held = source.stored < 0
                            ? with_tile(segment.format,
                                        [&](auto* tiles) {
                                            return fill_lane((decltype(tiles))data, source, row, lane, columns_);
                                        })
                            : fill_from_blocks((Stored)source.stored, source.codes + row * source.codes_row, columns_,
                                               data, lane);
            if (!held) held_ = false;
        }
    }

    const std::vector<Source>& sources_;
    const std::vector<Segment>& segments_;
    int tiles_, columns_;
    std::atomic<bool> held_{true};
};

}  // namespace

Matrix::Matrix(const Source* sources, int count, int columns, Arena& arena)
    : columns_(columns), sources_(sources, sources + count) {
    for (int i = 0; i < count; i++) {
        Segment segment;
        segment.format = (Format)sources[i].format;
        segment.first = rows_;
        segment.rows = (int)sources[i].rows;
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

void Matrix::fill(int threads) {
    if (sources_.empty()) return;
    Repack job(sources_, segments_, tiles_, columns_);
    Team::instance().run(job, threads);
    for (const Source& source : sources_)
        if (source.mapped) give_back_codes(source, columns_);
    sources_.clear();
    held_ = job.held();
}

void Matrix::row(int index, float* out) const {
    size_t s = 0;
    while (index >= segments_[s].first + segments_[s].rows) s++;
    const Segment& segment = segments_[s];
    int lane = (index - segment.first) % kLanes;
    const uint8_t* data = segment.data + (size_t)((index - segment.first) / kLanes) * segment.tile_bytes;
    with_tile(segment.format, [&](auto* tile) { read_lane((decltype(tile))data, lane, columns_, out); });
}

}  // namespace native

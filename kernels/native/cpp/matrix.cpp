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

// A row of the source becomes a lane of its tiles. For a plain format codes_group is the step from one column to the
// next.
template <class Tile>
void fill_lane(Tile* tile, const Source& source, int64_t row, int lane, int columns) {
    const uint8_t* codes = source.codes + row * source.codes_row;
    [[maybe_unused]] const uint8_t* scales = source.scales + row * source.scales_row;
    [[maybe_unused]] const uint8_t* minima = source.minima + row * source.minima_row;
    for (int k = 0; k < tiles_along<Tile>(columns); k++, tile++, codes += source.codes_group) {
        if constexpr (Tile::kPacked) {
            memcpy(&tile->halves[lane], scales + k * source.scales_group, 2);
            if (Tile::kMinima) memcpy(&tile->halves[kLanes + lane], minima + k * source.minima_group, 2);
            for (int i = 0; i < Tile::kRowBytes / 4; i++) {
                uint32_t four;
                memcpy(&four, codes + 4 * i, 4);
                if (Tile::kLow == -128) four ^= 0x80808080u;  // int8 codes, which tiles store unsigned
                memcpy(tile->codes + 64 * i + 4 * lane, &four, 4);
            }
        } else {
            memcpy(&tile->values[lane], codes, sizeof tile->values[lane]);
        }
    }
}

template <class Tile>
void read_lane(const Tile* tile, int lane, int columns, float* out) {
    for (int k = 0; k < columns; k++) {
        const Tile& at = tile[k / Tile::kColumns];
        if constexpr (Tile::kPacked) {
            int i = k % kGroup, code = at.code(i / 4 * 64 + 4 * lane + i % 4) + Tile::kLow;
            out[k] = (float)code * float_of_half(at.scales()[lane]);
            if (Tile::kMinima) out[k] += float_of_half(at.minima()[lane]);
        } else if constexpr (Tile::kFormat == Format::f32) {
            out[k] = at.values[lane];
        } else {
            out[k] = Tile::kFormat == Format::f16 ? float_of_half(at.values[lane]) : float_of_bf16(at.values[lane]);
        }
    }
}

// The pages that hold nothing but the source: from its first code to its last one, whatever the strides.
void give_back_codes(const Source& source, int columns) {
    if (source.rows < 1 || source.codes_row < 0 || source.codes_group < 0) return;
    if (source.stored >= 0) return give_back(source.codes, source.codes + source.rows * source.codes_row);
    int64_t behind = with_tile((Format)source.format, [&](auto* tile) {
        using Tile = std::remove_pointer_t<decltype(tile)>;
        return (tiles_along<Tile>(columns) - 1) * source.codes_group + Tile::kRowBytes;
    });
    give_back(source.codes, source.codes + (source.rows - 1) * source.codes_row + behind);
}

// One task fills a few tiles; rows past the end of the segment stay zero.
class Repack : public Job {
public:
    Repack(const std::vector<Source>& sources, const std::vector<Segment>& segments, int tiles, int columns, int threads)
        : sources_(sources), segments_(segments), tiles_(tiles), columns_(columns) {
        bool stored = false;
        for (const Source& source : sources) stored |= source.stored >= 0;
        rows_.resize(threads, CanonicalRow(stored ? columns : 0));
    }

    bool held() const { return held_; }

    int stages() const override { return 1; }
    int tasks(int) override { return (tiles_ + kTilesPerTask - 1) / kTilesPerTask; }

    void run(int, int task, int worker) override {
        int end = (task + 1) * kTilesPerTask < tiles_ ? (task + 1) * kTilesPerTask : tiles_;
        size_t s = 0;
        for (int tile = task * kTilesPerTask; tile < end; tile++) {
            while (tile >= segments_[s].tile_first + segments_[s].tiles) s++;
            fill(segments_[s], sources_[s], tile - segments_[s].tile_first, rows_[(size_t)worker]);
        }
    }

private:
    static constexpr int kTilesPerTask = 4;

    void fill(const Segment& segment, const Source& source, int tile, CanonicalRow& converted) {
        uint8_t* data = const_cast<uint8_t*>(segment.data) + tile * segment.tile_bytes;
        for (int lane = 0; lane < kLanes && tile * kLanes + lane < segment.rows; lane++) {
            int64_t row = (int64_t)tile * kLanes + lane;
            with_tile(segment.format, [&](auto* tiles) {
                if (source.stored < 0) return fill_lane((decltype(tiles))data, source, row, lane, columns_);
                const uint8_t* blocks = source.codes + row * source.codes_row;
                if (!convert_row((Stored)source.stored, blocks, columns_, converted)) held_ = false;
                fill_lane((decltype(tiles))data, source_of(converted, tiles->kRowBytes), 0, lane, columns_);
            });
        }
    }

    static Source source_of(const CanonicalRow& row, int row_bytes) {
        Source source = {};
        source.codes = row.codes.data();
        source.codes_group = row_bytes;
        source.scales = (const uint8_t*)row.scales.data();
        source.minima = (const uint8_t*)row.minima.data();
        source.scales_group = source.minima_group = 2;
        return source;
    }

    const std::vector<Source>& sources_;
    const std::vector<Segment>& segments_;
    int tiles_, columns_;
    std::vector<CanonicalRow> rows_;  // one a worker
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
    Repack job(sources_, segments_, tiles_, columns_, threads);
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

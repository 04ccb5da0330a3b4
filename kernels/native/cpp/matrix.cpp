#include "matrix.hpp"

#include <cstring>

#include "half.hpp"
#include "team.hpp"

namespace native {
namespace {

bool is_quantized(Format format) { return format == Format::q4 || format == Format::q8; }

size_t bytes_of_tile(Format format, int columns) {
    switch (format) {
        case Format::q4: return sizeof(Q4Tile) * (size_t)groups_of(columns);
        case Format::q8: return sizeof(Q8Tile) * (size_t)groups_of(columns);
        case Format::f32: return sizeof(float) * kLanes * (size_t)columns;
        default: return sizeof(uint16_t) * kLanes * (size_t)columns;
    }
}

void fill_q4(Q4Tile* tile, const Source& source, int64_t row, int lane, int groups) {
    const uint8_t* codes = source.codes + row * source.codes_row;
    const uint8_t* scales = source.scales + row * source.scales_row;
    const uint8_t* minima = source.minima + row * source.minima_row;
    for (int k = 0; k < groups; k++, tile++) {
        memcpy(&tile->scales[lane], scales, 2);
        memcpy(&tile->minima[lane], minima, 2);
        for (int i = 0; i < 4; i++) memcpy(tile->codes + 64 * i + 4 * lane, codes + 4 * i, 4);
        codes += source.codes_group;
        scales += source.scales_group;
        minima += source.minima_group;
    }
}

void fill_q8(Q8Tile* tile, const Source& source, int64_t row, int lane, int groups) {
    const uint8_t* codes = source.codes + row * source.codes_row;
    const uint8_t* scales = source.scales + row * source.scales_row;
    for (int k = 0; k < groups; k++, tile++) {
        memcpy(&tile->scales[lane], scales, 2);
        for (int i = 0; i < 8; i++) {
            uint32_t four;
            memcpy(&four, codes + 4 * i, 4);
            four ^= 0x80808080u;  // int8 code + 128
            memcpy(tile->codes + 64 * i + 4 * lane, &four, 4);
        }
        codes += source.codes_group;
        scales += source.scales_group;
    }
}

// codes_group is the step from one column to the next.
template <class T>
void fill_plain(T* tile, const Source& source, int64_t row, int lane, int columns) {
    const uint8_t* values = source.codes + row * source.codes_row;
    for (int k = 0; k < columns; k++) memcpy(tile + (size_t)k * kLanes + lane, values + k * source.codes_group, sizeof(T));
}

// Bytes of one row's codes in a group, or of one value of a plain format.
int64_t bytes_of_codes(Format format) {
    switch (format) {
        case Format::q4: return 16;
        case Format::q8: return 32;
        case Format::f32: return 4;
        default: return 2;
    }
}

// The pages that hold nothing but the source: from its first code to its last one, whatever the strides.
void give_back_codes(const Source& source, int columns) {
    Format format = (Format)source.format;
    int64_t steps = (is_quantized(format) ? groups_of(columns) : columns) - 1;
    if (source.rows < 1 || source.codes_row < 0 || source.codes_group < 0) return;
    int64_t last = (source.rows - 1) * source.codes_row + steps * source.codes_group;
    give_back(source.codes, source.codes + last + bytes_of_codes(format));
}

// One task fills a few tiles; rows past the end of the segment stay zero.
class Repack : public Job {
public:
    Repack(const Source* sources, const std::vector<Segment>& segments, int tiles, int columns)
        : sources_(sources), segments_(segments), tiles_(tiles), columns_(columns) {}

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
            switch (segment.format) {
                case Format::q4: fill_q4((Q4Tile*)data, source, row, lane, groups_of(columns_)); break;
                case Format::q8: fill_q8((Q8Tile*)data, source, row, lane, groups_of(columns_)); break;
                case Format::f32: fill_plain((float*)data, source, row, lane, columns_); break;
                default: fill_plain((uint16_t*)data, source, row, lane, columns_); break;
            }
        }
    }

    const Source* sources_;
    const std::vector<Segment>& segments_;
    int tiles_, columns_;
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
        segment.tile_bytes = bytes_of_tile(segment.format, columns);
        segment.data = (const uint8_t*)arena.allocate(segment.tile_bytes * (size_t)segment.tiles);
        segments_.push_back(segment);
        rows_ += segment.rows;
        tiles_ += segment.tiles;
    }
}

void Matrix::fill(int threads) {
    if (sources_.empty()) return;
    Repack job(sources_.data(), segments_, tiles_, columns_);
    Team::instance().run(job, threads);
    for (const Source& source : sources_)
        if (source.mapped) give_back_codes(source, columns_);
    sources_.clear();
}

void Matrix::row(int index, float* out) const {
    size_t s = 0;
    while (index >= segments_[s].first + segments_[s].rows) s++;
    const Segment& segment = segments_[s];
    int lane = (index - segment.first) % kLanes;
    const uint8_t* data = segment.data + (size_t)((index - segment.first) / kLanes) * segment.tile_bytes;
    for (int k = 0; k < columns_; k++) {
        int group = k / kGroup, i = k % kGroup;
        switch (segment.format) {
            case Format::q4: {
                const Q4Tile& tile = ((const Q4Tile*)data)[group];
                uint8_t pair = tile.codes[i % 16 / 4 * 64 + 4 * lane + i % 4];
                float code = (float)(i < 16 ? pair & 15 : pair >> 4);
                out[k] = code * float_of_half(tile.scales[lane]) + float_of_half(tile.minima[lane]);
                break;
            }
            case Format::q8: {
                const Q8Tile& tile = ((const Q8Tile*)data)[group];
                float code = (float)(tile.codes[i / 4 * 64 + 4 * lane + i % 4] - 128);
                out[k] = code * float_of_half(tile.scales[lane]);
                break;
            }
            case Format::f32: out[k] = ((const float*)data)[(size_t)k * kLanes + lane]; break;
            case Format::f16: out[k] = float_of_half(((const uint16_t*)data)[(size_t)k * kLanes + lane]); break;
            case Format::bf16: out[k] = float_of_bf16(((const uint16_t*)data)[(size_t)k * kLanes + lane]); break;
        }
    }
}

}  // namespace native

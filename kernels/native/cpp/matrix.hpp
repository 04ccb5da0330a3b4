// A weight matrix in tiles: blocks of rows, each in a format of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formats.hpp"
#include "memory.hpp"
#include "source.hpp"

namespace native {

struct Segment {
    Format format;
    int first, rows;        // its rows of the matrix
    int tile_first, tiles;  // its tiles among those of the matrix
    const uint8_t* data;
    size_t tile_bytes;
    float factor;  // of its values, and of products with them
};

struct Kernels;

class Matrix {
public:
    // Room for `count` sources, one below the other, in tiles. They have to stay where they are until `fill`.
    Matrix(const Source* sources, int count, int columns, Arena& arena);

    // Copies the sources that wait for it, of all of these, on the team. Pages of files are given back as they are done.
    static void fill(const Kernels& kernels, const std::vector<std::unique_ptr<Matrix>>& matrices, int threads);
    bool held() const { return held_; }        // false: a row could not be held in the format

    int columns() const { return columns_; }
    int tiles() const { return tiles_; }
    const std::vector<Segment>& segments() const { return segments_; }
    void row(int index, float* out) const;     // one row as float32

private:
    friend class Repack;

    int rows_ = 0, columns_, tiles_ = 0;
    std::vector<Segment> segments_;
    std::vector<Source> sources_;  // not copied yet
    bool held_ = true;
};

}  // namespace native

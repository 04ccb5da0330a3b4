// Attention of a whole step: which rows share keys, how the work is cut into tasks.
#pragma once

#include <vector>

#include "kernels.hpp"
#include "paged_cache.hpp"
#include "step.hpp"

namespace native {

// Where too few rows keep the threads busy, the spans of each row's keys become tasks of their own and a second stage
// joins them. The bits are the same either way.
class Attention {
public:
    // Room for the largest of these operations' tasks.
    Attention(const Kernels& kernels, const PagedCache& cache, const std::vector<Op>& ops, int threads, Arena& arena);

    void begin(const Step& step);        // for all layers of a step
    int cut(const Op& op);               // number of tasks; called before the tasks of each operation
    int joins() const;                   // number of tasks of the second stage

    // q, out: [rows][stride], the query heads side by side.
    void run(const Op& op, int index, int worker, const float* q, ptrdiff_t q_stride, float* out, ptrdiff_t out_stride);
    void join(const Op& op, int task, float* out, ptrdiff_t out_stride);

private:
    struct Tile {
        int row, rows;       // side by side, of one sequence, at consecutive positions
        int spans_begin, spans_end;
        int first_task;      // if split
        size_t partials;     // offset of its results: [spans][key heads][rows][heads of a group]
    };

    struct Task {
        const Tile* tile;
        int head, span;      // span: -1 if it is all of them
    };

    int group_of(const Op& op) const;                       // query heads that share a key head
    Task task_of(int index) const;
    const float* sinks(const Op& op, int head) const;       // of the query heads that share a key head, or null
    const int32_t* table_of(const Tile& tile) const;
    const void* first_keys(const Op& op, int index) const;  // of a task, null if there is no such task

    const Kernels& kernels_;
    const PagedCache& cache_;
    const Step* step_ = nullptr;
    std::vector<Tile> tiles_;
    std::vector<int> tile_of_row_;
    int threads_;
    int tasks_ = 0;          // of the operation that runs
    int group_ = 1, kv_heads_ = 1;  // likewise; group: query heads that share a key head
    bool split_ = false;
    std::vector<float> partials_;
    std::vector<float*> scratch_;  // one per worker
};

}  // namespace native

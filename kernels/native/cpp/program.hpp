// A recorded forward: operations over lasting buffers, run stage by stage on the team.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend.hpp"
#include "experts.hpp"
#include "kernels.hpp"
#include "matrix.hpp"
#include "memory.hpp"
#include "product.hpp"
#include "sampler.hpp"
#include "step.hpp"
#include "team.hpp"

namespace native {

struct Limits {
    int32_t rows, samples, sequences, blocks_per_sequence;
};

class Program : public Job {
public:
    // cache may be null if no operation uses it.
    Program(const Kernels& kernels, PagedCache* cache, const Op* ops, int op_count, const Buffer* buffers,
            int buffer_count, const Limits& limits, int threads);

    // Takes one step, which lies in the buffer. Returns what is wrong with it, empty if nothing.
    std::string run(const char* step, size_t bytes);

    void* storage(int buffer) const { return storage_[(size_t)buffer]; }
    int64_t expert_bytes() const { return experts_ ? experts_->bytes_read() : 0; }  // read by the last step
    const int32_t* tokens() const { return tokens_; }  // [samples] of the last step

    int stages() const override { return (int)stages_.size(); }
    int tasks(int stage) override;
    void run(int stage, int task, int worker) override;
    Ahead ahead(int stage, int worker) const override;

private:
    // Row operations that follow each other run as one stage: each task takes some rows through all of them.
    struct Stage {
        int first, count;  // operations
        int part;          // attention: 0 or 1 (join); experts, sample: their stage
        int linear;        // the first linear operation after it, or -1
    };

    void cut_into_stages();
    std::string check() const;
    int row_count(const Op& op) const { return op.samples ? step_.samples : step_.rows; }
    Rows rows_of(const View& view) const;
    void* blocks_of(const View& view) const { return storage_[(size_t)view.buffer]; }
    Rows floats_of(const View& view) const { return view.buffer < 0 ? Rows{} : rows_of(view); }
    const void* quantized_of(const View& view) const { return view.buffer < 0 ? nullptr : blocks_of(view); }
    int linear_tasks(const Op& op);
    int tile_units(const Op& op) const;
    void run_linear(const Op& op, int task);
    void prepare_row(const Op& op, int row) const;
    void run_row(const Op& op, int row);

    const Kernels& kernels_;
    PagedCache* cache_;
    std::vector<Op> ops_;
    std::vector<Buffer> buffers_;
    std::vector<void*> storage_;
    std::vector<Stage> stages_;
    Limits limits_;
    int table_ = 0, positions_ = 0, vocabulary_ = 0;  // rows of embedding and rotation, columns of logits
    int threads_;
    Arena arena_;
    std::unique_ptr<Attention> attention_;
    std::unique_ptr<Experts> experts_;
    Sampler sampler_;
    Rows logits_;
    Step step_;
    int32_t* tokens_;
    int rows_per_task_ = 1, tile_tasks_ = 1;  // of the stage that runs; tasks of a linear lie along tiles first
};

}  // namespace native

// Mixtures of experts: which rows chose which expert, and each expert's products for the rows that chose it.
#pragma once

#include <vector>

#include "kernels.hpp"
#include "memory.hpp"
#include "product.hpp"
#include "step.hpp"

namespace native {

// What a program's mixtures share: one of them is computed at a time. A row and one of its experts are a pair; the pairs
// of an expert stand side by side, its rows in ascending order, like the rows of a step of their own.
class Experts {
public:
    static constexpr int kStages = 4;  // between the routing and the sum: rows gathered, gate and up, gates, down

    // Room for the widest of the mixtures among these operations.
    Experts(const Kernels& kernels, const std::vector<Op>& ops, int rows, int threads, Arena& arena);

    void begin(int rows);  // of a step
    void route(const Op& op, int row, const float* logits);
    int tasks(const Op& op, int stage);  // in order, from one thread
    void run(const Op& op, int stage, int task, Rows x, const void* blocks);
    void sum(const Op& op, int row, float* out) const;
    int64_t bytes_read() const { return bytes_read_; }  // of weights, since the step began

private:
    // Some tiles (or groups of gated outputs) of an expert, for kLinearRows of its rows.
    struct Task {
        int expert, row_begin, first, last;
    };

    void arrange(const Op& op);
    int cut(const Op& op, bool down);
    void gather(const Op& op, int row, Rows x, const void* blocks);
    void multiply(const Op& op, const Task& task, Rows x, const void* blocks);
    void gate(const Op& op, int pair);
    void multiply_down(const Op& op, const Task& task);
    int pairs(int expert) const { return first_[(size_t)expert + 1] - first_[(size_t)expert]; }
    template <class T>
    T* of_row(T* values, int row) const { return values + (ptrdiff_t)row * most_used_; }

    const Kernels& kernels_;
    int threads_, most_used_ = 0, rows_ = 0, rows_per_task_ = 1;
    int32_t *chosen_, *place_;  // [rows][most_used_]: experts of a row, from the first choice on, and their pairs
    float* weights_;            // likewise
    std::vector<int> first_;    // the first pair of each expert, and the end
    std::vector<int> expert_of_;  // of each pair
    std::vector<Task> tasks_;
    int64_t bytes_read_ = 0;
    void *blocks_ = nullptr, *gated_blocks_ = nullptr;  // quantized rows of pairs
    Rows x_, hidden_, gated_, out_;                     // float rows of pairs
};

}  // namespace native

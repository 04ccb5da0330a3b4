#include "experts.hpp"

#include <algorithm>

#include "team.hpp"

namespace native {
namespace {

const Matrix& gate_up_of(const Op& op, int expert) { return *((const Matrix* const*)op.weight)[expert]; }
const Matrix& down_of(const Op& op, int expert) { return *((const Matrix* const*)op.down)[expert]; }

bool has_packed(const Matrix& matrix) {
    for (const Segment& segment : matrix.segments())
        if ((int)segment.format < kPackedFormats) return true;
    return false;
}

bool has_plain(const Matrix& matrix) {
    for (const Segment& segment : matrix.segments())
        if ((int)segment.format >= kPackedFormats) return true;
    return false;
}

// Whether the gated values are quantized at once: then nothing else of them is kept.
bool is_fused(const Op& op, int expert) { return is_gated_pair(gate_up_of(op, expert)) && !has_plain(down_of(op, expert)); }

// The blocks of an expert's rows begin where its first pair would be.
void* at_pair(void* blocks, int pair, int columns) { return (Activation<1>*)blocks + (size_t)pair * groups_of(columns); }

Rows at_pair(Rows rows, int pair) { return {rows.data + pair * rows.stride, rows.stride}; }

}  // namespace

Experts::Experts(const Kernels& kernels, const std::vector<Op>& ops, int rows, int threads, Arena& arena)
    : kernels_(kernels), threads_(threads) {
    int most = 0, width = 0, hidden = 0, quantized = 0, plain = 0, unfused = 0, kept = 0;
    for (const Op& op : ops) {
        if (op.kind != OpKind::experts) continue;
        most = std::max(most, op.experts);
        most_used_ = std::max(most_used_, op.used);
        for (int e = 0; e < op.experts; e++) {
            const Matrix &gate_up = gate_up_of(op, e), &down = down_of(op, e);
            width = std::max(width, gate_up.columns());
            hidden = std::max(hidden, down.columns());
            if (has_packed(gate_up)) quantized = std::max(quantized, gate_up.columns());
            if (has_plain(gate_up)) plain = std::max(plain, gate_up.columns());
            if (!is_fused(op, e)) unfused = std::max(unfused, 2 * down.columns());
            if (has_plain(down)) kept = std::max(kept, down.columns());
        }
    }
    size_t pairs = (size_t)rows * (size_t)most_used_;
    first_.resize((size_t)most + 1);
    expert_of_.resize(pairs);
    tasks_.reserve((size_t)most + pairs / kLinearRows + (size_t)(2 * kTasksPerThread * threads));
    chosen_ = (int32_t*)arena.allocate(pairs * sizeof *chosen_);
    place_ = (int32_t*)arena.allocate(pairs * sizeof *place_);
    weights_ = (float*)arena.allocate(pairs * sizeof *weights_);
    auto blocks_for = [&](int columns) {
        return columns ? arena.allocate(pairs * (size_t)groups_of(columns) * sizeof(Activation<1>)) : nullptr;
    };
    auto rows_for = [&](int columns) {
        if (!columns) return Rows{};
        ptrdiff_t stride = row_stride(columns);
        return Rows{(float*)arena.allocate(pairs * (size_t)stride * sizeof(float)), stride};
    };
    blocks_ = blocks_for(quantized);
    gated_blocks_ = blocks_for(hidden);
    x_ = rows_for(plain);
    hidden_ = rows_for(unfused);
    gated_ = rows_for(unfused ? std::max(kept, unfused / 2) : kept);
    out_ = rows_for(width);
}

void Experts::begin(int rows) {
    rows_ = rows;
    bytes_read_ = 0;
}

void Experts::route(const Op& op, int row, const float* logits) {
    const int32_t* chosen = of_row(chosen_, row);
    float* weights = of_row(weights_, row);
    kernels_.route(logits, op.preference, op.experts, op.used, op.sigmoid, op.over_all, of_row(chosen_, row), weights);
    if (!op.expert_scales) return;
    for (int i = 0; i < op.used; i++) weights[i] *= op.expert_scales[chosen[i]];
}

// Pairs by expert, and those of an expert by row: a counting sort.
void Experts::arrange(const Op& op) {
    std::fill(first_.begin(), first_.end(), 0);
    for (int row = 0; row < rows_; row++)
        for (int i = 0; i < op.used; i++) first_[(size_t)of_row(chosen_, row)[i] + 1]++;
    for (int e = 0; e < op.experts; e++) {
        if (first_[(size_t)e + 1]) bytes_read_ += (int64_t)(bytes_of(gate_up_of(op, e)) + bytes_of(down_of(op, e)));
        first_[(size_t)e + 1] += first_[(size_t)e];
    }
    for (int row = 0; row < rows_; row++) {
        for (int i = 0; i < op.used; i++) {
            int expert = of_row(chosen_, row)[i], pair = first_[(size_t)expert]++;
            of_row(place_, row)[i] = pair;
            expert_of_[(size_t)pair] = expert;
        }
    }
    for (int e = op.experts; e > 0; e--) first_[(size_t)e] = first_[(size_t)e - 1];
    first_[0] = 0;
}

// Tasks that cost about the same, whatever the sizes of the experts and the numbers of their rows.
int Experts::cut(const Op& op, bool down) {
    auto matrix_of = [&](int e) -> const Matrix& { return down ? down_of(op, e) : gate_up_of(op, e); };
    auto cost_of = [&](int e, int rows) { return bytes_of(matrix_of(e)) * (size_t)divided(rows, kFewRows); };
    size_t total = 0;
    for (int e = 0; e < op.experts; e++)
        if (pairs(e)) total += cost_of(e, pairs(e));
    size_t each = std::max(kTaskBytes, total / (size_t)(kTasksPerThread * threads_));
    tasks_.clear();
    for (int e = 0; e < op.experts; e++) {
        if (!pairs(e)) continue;
        int units = !down && is_fused(op, e) ? down_of(op, e).columns() / kGroup : matrix_of(e).tiles();
        for (int row = 0; row < pairs(e); row += kLinearRows) {
            size_t cost = cost_of(e, std::min(kLinearRows, pairs(e) - row));
            int parts = (int)std::min((size_t)units, std::max((size_t)1, (cost + each / 2) / each));
            for (int64_t part = 0; part < parts; part++)
                tasks_.push_back({e, row, (int)(part * units / parts), (int)((part + 1) * units / parts)});
        }
    }
    return (int)tasks_.size();
}

int Experts::tasks(const Op& op, int stage) {
    int total = rows_ * op.used;
    switch (stage) {
        case 0:
            arrange(op);
            if (rows_ == 1) return 0;  // the one row of every expert that it chose stands where it is
            rows_per_task_ = divided(rows_, kTasksPerThread * threads_);
            return divided(rows_, rows_per_task_);
        case 1: return cut(op, false);
        case 2: {
            bool all_fused = true;
            for (int e = 0; e < op.experts; e++) all_fused = all_fused && (!pairs(e) || is_fused(op, e));
            if (all_fused) return 0;
            rows_per_task_ = divided(total, kTasksPerThread * threads_);
            return divided(total, rows_per_task_);
        }
        default: return cut(op, true);
    }
}

void Experts::run(const Op& op, int stage, int task, Rows x, const void* blocks) {
    if (stage == 1) return multiply(op, tasks_[(size_t)task], x, blocks);
    if (stage == 3) return multiply_down(op, tasks_[(size_t)task]);
    int count = stage == 0 ? rows_ : rows_ * op.used, end = std::min((task + 1) * rows_per_task_, count);
    for (int i = task * rows_per_task_; i < end; i++) {
        if (stage == 0) gather(op, i, x, blocks);
        else gate(op, i);
    }
}

// A row to its place among the rows of each of its experts.
void Experts::gather(const Op& op, int row, Rows x, const void* blocks) {
    int columns = gate_up_of(op, 0).columns(), groups = groups_of(columns);
    for (int i = 0; i < op.used; i++) {
        int expert = of_row(chosen_, row)[i], pair = of_row(place_, row)[i];
        if (blocks) {
            int begin = first_[(size_t)expert], count = pairs(expert);
            const auto* from = (const Activation<1>*)blocks + activation_index(row, 0, rows_, groups);
            auto* to = (Activation<1>*)at_pair(blocks_, begin, columns) + activation_index(pair - begin, 0, count, groups);
            int from_step = block_height(row, rows_), to_step = block_height(pair - begin, count);
            for (int k = 0; k < groups; k++) to[(ptrdiff_t)k * to_step] = from[(ptrdiff_t)k * from_step];
        }
        if (x.data) {
            const float* from = x.data + row * x.stride;
            std::copy(from, from + columns, at_pair(x_, pair).data);
        }
    }
}

void Experts::multiply(const Op& op, const Task& task, Rows x, const void* blocks) {
    int e = task.expert, begin = first_[(size_t)e];
    const Matrix& matrix = gate_up_of(op, e);
    int hidden = down_of(op, e).columns();
    Product p;
    p.count = pairs(e);
    p.begin = task.row_begin;
    p.blocks = rows_ == 1 || !blocks ? blocks : at_pair(blocks_, begin, matrix.columns());
    p.x = rows_ == 1 || !x.data ? x : at_pair(x_, begin);
    p.bias = op.bias ? op.bias + (ptrdiff_t)e * 2 * hidden : nullptr;
    if (is_fused(op, e)) {
        void* gated = at_pair(gated_blocks_, begin, hidden);
        return gated_product(kernels_, matrix, p, op.gate, gated, groups_of(hidden), task.first, task.last);
    }
    p.out = at_pair(hidden_, begin);
    product(kernels_, matrix, p, task.first, task.last);
}

// Of an expert that is not fused: its gated values, as its down projection takes them.
void Experts::gate(const Op& op, int pair) {
    int e = expert_of_[(size_t)pair], begin = first_[(size_t)e];
    if (is_fused(op, e)) return;
    const Matrix& down = down_of(op, e);
    int hidden = down.columns();
    const float* gates = at_pair(hidden_, pair).data;
    float* gated = at_pair(gated_, pair).data;
    kernels_.gated(op.gate, gates, gates + hidden, hidden, gated);
    if (has_packed(down)) kernels_.quantize[0](gated, hidden, at_pair(gated_blocks_, begin, hidden), pair - begin, pairs(e));
}

void Experts::multiply_down(const Op& op, const Task& task) {
    int e = task.expert, begin = first_[(size_t)e];
    const Matrix& matrix = down_of(op, e);
    Product p;
    p.count = pairs(e);
    p.begin = task.row_begin;
    p.blocks = at_pair(gated_blocks_, begin, matrix.columns());
    p.x = gated_.data ? at_pair(gated_, begin) : gated_;
    p.out = at_pair(out_, begin);
    p.bias = op.down_bias ? op.down_bias + (ptrdiff_t)e * gate_up_of(op, e).columns() : nullptr;
    product(kernels_, matrix, p, task.first, task.last);
}

// A row's results by their weights, from its first expert on.
void Experts::sum(const Op& op, int row, float* out) const {
    const int32_t* place = of_row(place_, row);
    const float* weights = of_row(weights_, row);
    kernels_.scale(at_pair(out_, place[0]).data, weights[0], op.out.columns, out);
    for (int i = 1; i < op.used; i++) kernels_.add_scaled(at_pair(out_, place[i]).data, weights[i], op.out.columns, out);
}

}  // namespace native

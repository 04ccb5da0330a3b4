#include "program.hpp"

#include <algorithm>

namespace native {
namespace {

constexpr size_t kAheadBytes = 131072;  // of a matrix that a waiting thread fetches

bool is_row_operation(OpKind kind) { return kind <= OpKind::combine; }
bool is_linear(OpKind kind) { return kind == OpKind::linear || kind == OpKind::gated_linear; }

int least(int known, int limit) { return known ? std::min(known, limit) : limit; }

size_t bytes_of(const Buffer& buffer, int rows) {
    if (buffer.planes == 0) return (size_t)row_stride(buffer.columns) * sizeof(float) * (size_t)rows;
    size_t group = buffer.planes == 1 ? sizeof(Activation<1>) : sizeof(Activation<2>);
    return group * (size_t)groups_of(buffer.columns) * (size_t)rows;
}

}  // namespace

Program::Program(const Kernels& kernels, PagedCache* cache, const Op* ops, int op_count, const Buffer* buffers,
                 int buffer_count, const Limits& limits, int threads)
    : kernels_(kernels),
      cache_(cache),
      ops_(ops, ops + op_count),
      buffers_(buffers, buffers + buffer_count),
      limits_(limits),
      threads_(threads),
      sampler_(kernels) {
    for (const Buffer& buffer : buffers_)
        storage_.push_back(arena_.allocate(bytes_of(buffer, buffer.samples ? limits.samples : limits.rows)));
    tokens_ = (int32_t*)arena_.allocate((size_t)limits.samples * sizeof(int32_t));
    bool attends = false, mixtures = false;
    for (const Op& op : ops_) {
        if (op.kind == OpKind::attention) attends = true;
        if (op.kind == OpKind::experts) mixtures = true;
        if (op.kind == OpKind::embedding) table_ = least(table_, op.limit);
        if (op.kind == OpKind::rope) positions_ = least(positions_, op.limit);
        if (op.kind == OpKind::sample) {
            logits_ = rows_of(op.x);
            vocabulary_ = op.x.columns;
        }
    }
    if (attends) attention_ = std::make_unique<Attention>(kernels, *cache, ops_, threads, arena_);
    if (mixtures) experts_ = std::make_unique<Experts>(kernels, ops_, limits.rows, threads, arena_);
    cut_into_stages();
}

void Program::cut_into_stages() {
    for (int i = 0; i < (int)ops_.size(); i++) {
        OpKind kind = ops_[(size_t)i].kind;
        if (kind == OpKind::attention) {
            for (int part = 0; part < 2; part++) stages_.push_back({i, 1, part, -1});
        } else if (kind == OpKind::experts) {
            for (int part = 0; part < Experts::kStages; part++) stages_.push_back({i, 1, part, -1});
        } else if (kind == OpKind::sample) {
            for (int part = 0; part < Sampler::kStages; part++) stages_.push_back({i, 1, part, -1});
        } else {
            const Op* before = i ? &ops_[(size_t)i - 1] : nullptr;
            // A gather reads rows of other tasks, so it starts anew.
            bool joins = before && is_row_operation(before->kind) && is_row_operation(kind) &&
                         before->samples == ops_[(size_t)i].samples && kind != OpKind::gather;
            if (joins) stages_.back().count++;
            else stages_.push_back({i, 1, 0, -1});
        }
    }
    int linear = -1;
    for (size_t i = stages_.size(); i-- > 0;) {
        stages_[i].linear = linear;
        if (is_linear(ops_[(size_t)stages_[i].first].kind)) linear = stages_[i].first;
    }
}

Rows Program::rows_of(const View& view) const {
    ptrdiff_t stride = row_stride(buffers_[(size_t)view.buffer].columns);
    return {(float*)storage_[(size_t)view.buffer] + view.offset, stride};
}

std::string Program::run(const char* step, size_t bytes) {
    if (!step_.find(step, bytes)) return "the arrays of the step are not all in its " + std::to_string(bytes) + " bytes";
    std::string wrong = check();
    if (!wrong.empty()) return wrong;
    if (attention_) attention_->begin(step_);
    if (experts_) experts_->begin(step_.rows);
    if (logits_.data) sampler_.begin(step_, logits_.data, logits_.stride, vocabulary_, tokens_);
    Team::instance().run(*this, threads_);
    return wrong;
}

// Everything that is used as an index is checked here once.
std::string Program::check() const {
    const Step& s = step_;
    auto beyond = [](const char* what, int64_t value, int64_t limit) {
        return std::string(what) + " is " + std::to_string(value) + ", outside 0 to " + std::to_string(limit - 1);
    };
    if (s.rows < 1 || s.rows > limits_.rows)
        return "a step of " + std::to_string(s.rows) + " rows, this program takes 1 to " + std::to_string(limits_.rows);
    if (s.samples < 0 || s.samples > limits_.samples)
        return std::to_string(s.samples) + " sample rows, this program takes " + std::to_string(limits_.samples);
    if (s.tables > limits_.sequences)
        return std::to_string(s.tables) + " sequences, this program takes " + std::to_string(limits_.sequences);
    if (s.table_width > limits_.blocks_per_sequence)
        return std::to_string(s.table_width) + " blocks of a sequence, this program takes " +
               std::to_string(limits_.blocks_per_sequence);
    int64_t slots = cache_ ? (int64_t)cache_->blocks * cache_->block_size : 0;
    for (int i = 0, needed = 0; i < s.rows; i++) {
        if (table_ && (s.tokens[i] < 0 || s.tokens[i] >= table_)) return beyond("a token", s.tokens[i], table_);
        if (s.positions[i] < 0 || (positions_ && s.positions[i] >= positions_))
            return beyond("a position", s.positions[i], positions_);
        if (!cache_) continue;
        if (s.slots[i] < 0 || s.slots[i] >= slots) return beyond("a slot", s.slots[i], slots);
        if (s.sequences[i] < 0 || s.sequences[i] >= s.tables) return beyond("a sequence", s.sequences[i], s.tables);
        needed = std::max(needed, s.positions[i] / cache_->block_size + 1);
        if (needed > s.table_width) return beyond("a block of a row", needed - 1, s.table_width);
        if (i + 1 < s.rows && s.sequences[i + 1] == s.sequences[i]) continue;
        const int32_t* table = s.block_tables + (ptrdiff_t)s.sequences[i] * s.table_width;
        for (int j = 0; j < needed; j++)
            if (table[j] < 0 || table[j] >= cache_->blocks) return beyond("a block", table[j], cache_->blocks);
        needed = 0;
    }
    int words = (vocabulary_ + 31) / 32;
    if (s.mask_words && s.mask_words != words)
        return "a mask of " + std::to_string(s.mask_words) + " words, the vocabulary takes " + std::to_string(words);
    if (s.samples && (s.seen_offsets[0] != 0 || s.bias_offsets[0] != 0))
        return "offsets of seen or biased tokens do not begin at 0";
    for (int i = 0; i < s.samples; i++) {
        if (s.sample_rows[i] < 0 || s.sample_rows[i] >= s.rows) return beyond("a sample row", s.sample_rows[i], s.rows);
        if (s.seen_offsets[i + 1] < s.seen_offsets[i] || s.bias_offsets[i + 1] < s.bias_offsets[i])
            return "offsets of seen or biased tokens run backwards";
    }
    if (s.seen_offsets[s.samples] > s.seen || s.bias_offsets[s.samples] > s.biased)
        return "offsets of seen or biased tokens point past the end of their arrays";
    for (int i = 0; s.samples && i < s.seen_offsets[s.samples]; i++)
        if (s.seen_ids[i] < 0 || s.seen_ids[i] >= vocabulary_) return beyond("a seen token", s.seen_ids[i], vocabulary_);
    for (int i = 0; s.samples && i < s.bias_offsets[s.samples]; i++)
        if (s.bias_ids[i] < 0 || s.bias_ids[i] >= vocabulary_) return beyond("a biased token", s.bias_ids[i], vocabulary_);
    return "";
}

int Program::tasks(int stage) {
    const Stage& s = stages_[(size_t)stage];
    const Op& op = ops_[(size_t)s.first];
    int rows = row_count(op);
    if (rows == 0) return 0;
    if (op.kind == OpKind::attention) return s.part == 0 ? attention_->cut(op) : attention_->joins();
    if (op.kind == OpKind::experts) return experts_->tasks(op, s.part);
    if (op.kind == OpKind::sample) return sampler_.tasks(s.part);
    if (is_linear(op.kind)) return linear_tasks(op);
    rows_per_task_ = divided(rows, kTasksPerThread * threads_);
    return divided(rows, rows_per_task_);
}

int Program::linear_tasks(const Op& op) {
    const Matrix& matrix = *(const Matrix*)op.weight;
    int rows = row_count(op), row_tasks = divided(rows, kLinearRows);
    size_t bytes = bytes_of(matrix);
    size_t wanted = (size_t)divided(kTasksPerThread * threads_, row_tasks);
    if (rows <= kFewRows) wanted = std::min(wanted, bytes / kTaskBytes + 1);
    tile_tasks_ = std::min(padded((int)wanted, threads_), tile_units(op));
    return tile_tasks_ * row_tasks;
}

// What a linear is cut along: tiles, or groups of the gated result, which take four tiles each.
int Program::tile_units(const Op& op) const {
    return op.kind == OpKind::linear ? ((const Matrix*)op.weight)->tiles() : op.out.columns / kGroup;
}

void Program::run(int stage, int task, int worker) {
    const Stage& s = stages_[(size_t)stage];
    const Op& op = ops_[(size_t)s.first];
    if (op.kind == OpKind::attention) {
        Rows q = rows_of(op.x), out = rows_of(op.out);
        if (s.part == 0) attention_->run(op, task, worker, q.data, q.stride, out.data, out.stride);
        else attention_->join(op, task, out.data, out.stride);
    } else if (op.kind == OpKind::experts) {
        experts_->run(op, s.part, task, floats_of(op.x), quantized_of(op.blocks));
    } else if (op.kind == OpKind::sample) {
        sampler_.run(s.part, task);
    } else if (is_linear(op.kind)) {
        run_linear(op, task);
    } else {
        int end = std::min((task + 1) * rows_per_task_, row_count(op));
        for (int row = task * rows_per_task_; row < end; row++) {
            for (int i = 0; i < s.count; i++) prepare_row(ops_[(size_t)(s.first + i)], row);
            for (int i = 0; i < s.count; i++) run_row(ops_[(size_t)(s.first + i)], row);
        }
    }
}

// The first weights of the worker's share of the next linear. With more rows its tasks lie along the rows, too, and
// weights are little of the work.
Ahead Program::ahead(int stage, int worker) const {
    int linear = stages_[(size_t)stage].linear;
    if (linear < 0 || row_count(ops_[(size_t)linear]) > kLinearRows) return {};
    const Op& op = ops_[(size_t)linear];
    int units = tile_units(op), tiles_per_unit = op.kind == OpKind::linear ? 1 : 2;
    int first = Team::share(worker, threads_, units) * tiles_per_unit;
    int last = Team::share(worker + 1, threads_, units) * tiles_per_unit;
    Ahead ahead;
    int parts = 0;
    for (const Segment& segment : ((const Matrix*)op.weight)->segments()) {
        int tile = op.kind == OpKind::linear ? first - segment.tile_first : first;
        if (tile < 0 || tile >= segment.tiles || parts == 2) continue;
        ahead.begins[parts++] = segment.data + (size_t)tile * segment.tile_bytes;
        ahead.bytes = std::min(kAheadBytes, (size_t)(last - first) * segment.tile_bytes);
    }
    return ahead;
}

void Program::run_linear(const Op& op, int task) {
    const Matrix& matrix = *(const Matrix*)op.weight;
    int64_t part = task % tile_tasks_, units = tile_units(op);
    int first = (int)(part * units / tile_tasks_), last = (int)((part + 1) * units / tile_tasks_);
    Product p;
    p.count = row_count(op);
    p.begin = task / tile_tasks_ * kLinearRows;
    p.planes = op.planes;
    p.blocks = quantized_of(op.blocks);
    p.bias = op.bias;
    if (op.kind == OpKind::gated_linear)
        return gated_product(kernels_, matrix, p, op.gate, blocks_of(op.out), op.out.columns / kGroup, first, last);
    p.x = floats_of(op.x);
    p.residual = floats_of(op.y);
    p.out = rows_of(op.out);
    product(kernels_, matrix, p, first, last);
}

// Operations before it in the stage hide the time that the memory takes.
void Program::prepare_row(const Op& op, int row) const {
    if (op.kind == OpKind::kv_write) cache_->fetch(op.layer, step_.slots[row]);
}

void Program::run_row(const Op& op, int row) {
    auto at = [&](const View& view) {
        Rows rows = rows_of(view);
        return rows.data + row * rows.stride;
    };
    switch (op.kind) {
        case OpKind::embedding:
            ((const Matrix*)op.weight)->row(step_.tokens[row], at(op.out));
            break;
        case OpKind::norm: {
            int norms = op.x.columns / op.length;
            kernels_.rms_norm(at(op.x), (const float*)op.weight, norms, op.length, op.number, at(op.out));
            break;
        }
        case OpKind::gated: {
            const float* x = at(op.x);
            const float* up = op.y.buffer < 0 ? x + op.out.columns : at(op.y);
            kernels_.gated(op.gate, x, up, op.out.columns, at(op.out));
            break;
        }
        case OpKind::add:
            kernels_.add(at(op.x), at(op.y), op.out.columns, at(op.out));
            break;
        case OpKind::scale:
            kernels_.scale(at(op.x), op.number, op.out.columns, at(op.out));
            break;
        case OpKind::cap:
            kernels_.cap(at(op.x), op.number, op.out.columns, at(op.out));
            break;
        case OpKind::center:
            kernels_.center(at(op.x), op.out.columns, at(op.out));
            break;
        case OpKind::rope: {
            ptrdiff_t angle = (ptrdiff_t)step_.positions[row] * (op.turning / 2);
            kernels_.rotate[op.interleaved](at(op.x), op.cos + angle, op.sin + angle, op.x.columns / op.length,
                                            op.length, op.turning, at(op.out));
            break;
        }
        case OpKind::kv_write:
            cache_->write(kernels_, op.layer, step_.slots[row], at(op.x), at(op.y));
            break;
        case OpKind::gather: {
            Rows x = rows_of(op.x);
            const float* from = x.data + step_.sample_rows[row] * x.stride;
            std::copy(from, from + op.out.columns, at(op.out));
            break;
        }
        case OpKind::quantize:
            kernels_.quantize[op.planes - 1](at(op.x), op.x.columns, blocks_of(op.blocks), row, row_count(op));
            break;
        case OpKind::route:
            experts_->route(op, row, at(op.x));
            break;
        case OpKind::combine:
            experts_->sum(op, row, at(op.out));
            break;
        default:
            break;
    }
}

}  // namespace native

#include "attend.hpp"

#include <algorithm>

namespace native {

Attention::Attention(const Kernels& kernels, const PagedCache& cache, const std::vector<Op>& ops, int threads,
                     Arena& arena)
    : kernels_(kernels), cache_(cache), threads_(threads) {
    size_t floats = 0;
    for (const Op& op : ops) {
        if (op.kind != OpKind::attention) continue;
        const PagedCache::Layer& layer = cache.layer(op.layer);
        floats = std::max(floats, attention_scratch(kTileRows * group_of(op), layer.head_dim, layer.value_stride));
    }
    for (int i = 0; i < threads; i++) scratch_.push_back((float*)arena.allocate(floats * sizeof(float)));
}

void Attention::begin(const Step& step) {
    step_ = &step;
    tiles_.clear();
    tile_of_row_.clear();
    for (int row = 0; row < step.rows; row++) {
        bool follows = row > 0 && step.sequences[row] == step.sequences[row - 1] &&
                       step.positions[row] == step.positions[row - 1] + 1;
        if (follows && tiles_.back().rows < kTileRows) tiles_.back().rows++;
        else tiles_.push_back({row, 1, 0, 0, 0, 0});
        tile_of_row_.push_back((int)tiles_.size() - 1);
    }
}

int Attention::group_of(const Op& op) const {
    const PagedCache::Layer& layer = cache_.layer(op.layer);
    return op.x.columns / layer.head_dim / layer.kv_heads;
}

int Attention::cut(const Op& op) {
    group_ = group_of(op);
    kv_heads_ = cache_.layer(op.layer).kv_heads;
    size_t size = partial_size(cache_.layer(op.layer).value_stride) * (size_t)group_;
    int tasks = 0, longest = 0;
    size_t partials = 0;
    for (Tile& tile : tiles_) {
        int newest = step_->positions[tile.row + tile.rows - 1];
        int oldest = std::max(0, step_->positions[tile.row] - op.window + 1);
        tile.spans_begin = oldest / kSpan;
        tile.spans_end = newest / kSpan + 1;
        tile.first_task = tasks;
        tile.partials = partials;
        int spans = tile.spans_end - tile.spans_begin;
        tasks += spans * kv_heads_;
        partials += (size_t)spans * kv_heads_ * tile.rows * size;
        longest = std::max(longest, spans);
    }
    int whole = (int)tiles_.size() * kv_heads_;
    split_ = longest > 1 && whole < 4 * threads_;
    if (split_) partials_.resize(partials);
    return tasks_ = split_ ? tasks : whole;
}

int Attention::joins() const { return split_ ? step_->rows * kv_heads_ : 0; }

Attention::Task Attention::task_of(int index) const {
    if (!split_)  // the last rows see the most keys: they go first
        return {&tiles_[tiles_.size() - 1 - (size_t)(index / kv_heads_)], index % kv_heads_, -1};
    const Tile* tile = &tiles_.back();
    while (tile->first_task > index) tile--;
    int of_tile = index - tile->first_task;
    return {tile, of_tile % kv_heads_, tile->spans_begin + of_tile / kv_heads_};
}

const int32_t* Attention::table_of(const Tile& tile) const {
    return step_->block_tables + (ptrdiff_t)step_->sequences[tile.row] * step_->table_width;
}

const float* Attention::sinks(const Op& op, int head) const {
    return op.weight ? (const float*)op.weight + (ptrdiff_t)head * group_ : nullptr;
}

const void* Attention::first_keys(const Op& op, int index) const {
    if (index >= tasks_) return nullptr;
    Task task = task_of(index);
    int span = split_ ? task.span : task.tile->spans_begin;
    int position = std::max(span * kSpan, step_->positions[task.tile->row] - op.window + 1);
    return cache_.keys_at(op.layer, task.head, table_of(*task.tile)[position / cache_.block_size]);
}

void Attention::run(const Op& op, int index, int worker, const float* q, ptrdiff_t q_stride, float* out,
                    ptrdiff_t out_stride) {
    auto [tile, head, span] = task_of(index);
    const PagedCache::Layer& layer = cache_.layer(op.layer);
    ptrdiff_t column = (ptrdiff_t)head * group_ * layer.head_dim;
    AttentionArgs args;
    args.q = q + tile->row * q_stride + column;
    args.out = out + tile->row * out_stride + column;
    args.q_stride = q_stride;
    args.out_stride = out_stride;
    args.keys = cache_.keys(op.layer, head);
    args.values = cache_.values(op.layer, head);
    args.next_keys = first_keys(op, index + 1);
    args.table = table_of(*tile);
    args.block_stride = cache_.block_stride;
    args.block_size = cache_.block_size;
    args.scales = layer.scales;
    args.head_dim = layer.head_dim;
    args.value_stride = layer.value_stride;
    args.rows = tile->rows;
    args.heads = group_;
    args.position = step_->positions[tile->row];
    args.window = op.window;
    // The softmax is to base 2, a cap is applied to scores as they are.
    args.scale = op.cap ? op.number / op.cap : op.number * kLog2E;
    args.cap = op.cap * kLog2E;
    args.sinks = sinks(op, head);
    args.span_begin = split_ ? span : tile->spans_begin;
    args.span_end = split_ ? span + 1 : tile->spans_end;
    args.scratch = scratch_[(size_t)worker];
    size_t of_task = (size_t)tile->rows * group_ * partial_size(layer.value_stride);
    args.partial = split_ ? partials_.data() + tile->partials + (size_t)(index - tile->first_task) * of_task : nullptr;
    kernels_.attention[(int)cache_.format](args);
}

void Attention::join(const Op& op, int task, float* out, ptrdiff_t out_stride) {
    int row = task / kv_heads_, head = task % kv_heads_;
    const PagedCache::Layer& layer = cache_.layer(op.layer);
    const Tile& tile = tiles_[(size_t)tile_of_row_[(size_t)row]];
    size_t size = partial_size(layer.value_stride), of_task = (size_t)tile.rows * group_ * size;
    for (int i = 0; i < group_; i++) {
        size_t vector = (size_t)(row - tile.row) * group_ + i;
        float* first = partials_.data() + tile.partials + head * of_task + vector * size;
        float* target = out + row * out_stride + ((ptrdiff_t)head * group_ + i) * layer.head_dim;
        kernels_.join_spans(first, tile.spans_end - tile.spans_begin, (ptrdiff_t)(of_task * kv_heads_),
                            layer.head_dim, layer.value_stride, sinks(op, head) ? sinks(op, head) + i : nullptr,
                            target);
    }
}

}  // namespace native

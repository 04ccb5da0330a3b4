// Paged causal attention with an online softmax (arXiv 1805.02867): groups of 32 keys at absolute positions, joined in
// order within spans of 512 keys, then spans in order. Hidden keys take no part, not even as zeros.
#pragma once

// What is known of one query vector's result after some keys: sum of exp(score - maximum) and that sum of values.
struct Partial {
    float* values;  // [value_stride], then maximum and sum
    int stride;

    float& maximum() const { return values[stride]; }
    float& sum() const { return values[stride + 1]; }
    bool empty() const { return sum() == 0.0f; }
};

INLINE void clear(Partial p) {
    for (int i = 0; i < p.stride; i += kLanes) store(p.values + i, splat(0.0f));
    p.maximum() = -__builtin_inff();
    p.sum() = 0.0f;
}

// total := total joined with the keys that follow it.
static void join(Partial total, Partial next) {
    if (next.empty()) return;
    if (total.empty()) {
        memcpy(total.values, next.values, partial_size(total.stride) * sizeof(float));
        return;
    }
    float maximum = total.maximum() > next.maximum() ? total.maximum() : next.maximum();
    float before = exp32(total.maximum() - maximum), after = exp32(next.maximum() - maximum);
    total.maximum() = maximum;
    total.sum() = total.sum() * before + next.sum() * after;
    for (int i = 0; i < total.stride; i += kLanes)
        store(total.values + i, load(total.values + i) * splat(before) + load(next.values + i) * splat(after));
}

static void finish(Partial p, int head_dim, float* out) {
    Vec inverse = splat(1.0f / p.sum());
    int whole = head_dim / kLanes * kLanes;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(p.values + i) * inverse);
    if (whole < head_dim) store_first(out + whole, load(p.values + whole) * inverse, head_dim - whole);
}

// Turns the scores of one vector's group into weights exp(score - maximum) and adds their sum to its result. Only keys
// low to high are seen.
INLINE void soften(float* weights, Partial p, int low, int high, float scale) {
    Vec a = load(weights) * splat(scale), b = load(weights + kLanes) * splat(scale);
    if (low > 0 || high < kGroup) {
        store(weights, a);
        store(weights + kLanes, b);
        for (int i = 0; i < kGroup; i++)
            if (i < low || i >= high) weights[i] = -__builtin_inff();
        a = load(weights);
        b = load(weights + kLanes);
    }
    float peak = largest(greater(a, b));
    if (peak > p.maximum()) {
        float factor = exp32(p.maximum() - peak);
        p.maximum() = peak;
        p.sum() = p.sum() * factor;
        for (int i = 0; i < p.stride; i += kLanes) store(p.values + i, load(p.values + i) * splat(factor));
    }
    a = exp32(a - splat(p.maximum()));
    b = exp32(b - splat(p.maximum()));
    p.sum() = p.sum() + sum(a + b);
    store(weights, a);
    store(weights + kLanes, b);
}

// The scratch of a task; query vectors stand row by row, `heads` to a row.
struct Scratch {
    float* q;        // [vectors][head_dim padded to lanes]
    float* weights;  // [vectors][kGroup]
    float* span;     // [vectors] results of this span
    float* total;    // [vectors] and of the spans up to it
    ptrdiff_t q_stride, partial_stride;
};

INLINE Scratch divide_scratch(const AttentionArgs& a) {
    ptrdiff_t vectors = a.rows * a.heads, q_stride = padded(a.head_dim, kLanes);
    ptrdiff_t partial_stride = (ptrdiff_t)partial_size(a.value_stride);
    float* weights = a.scratch + vectors * q_stride;
    float* span = weights + vectors * kGroup;
    return {a.scratch, weights, span, span + vectors * partial_stride, q_stride, partial_stride};
}

// Scores of some vectors with the keys of a group up to `high`; the others get none.
template <class Format>
INLINE void score(const AttentionArgs& a, const Scratch& s, int vectors, int group, int high) {
    using Type = typename Format::Type;
    for (int i = 0; i < vectors * kGroup; i += kLanes) store(s.weights + i, splat(0.0f));
    for (int key = 0, width; key < high; key += width) {
        width = a.block_size < kGroup ? a.block_size : kGroup;
        int position = group * kGroup + key, strips = (high - key < width ? high - key : width) + kLanes - 1;
        const Type* page = (const Type*)a.keys + a.table[position / a.block_size] * a.block_stride;
        accumulate_any<Format>(vectors, s.weights + key, kGroup, s.q, s.q_stride,
                               page + position % a.block_size * a.head_dim, kLanes, a.head_dim * kLanes, a.head_dim,
                               strips / kLanes);
    }
}

// Adds the values of keys low to high of a group, by their weights, to the results of some vectors.
template <class Format>
INLINE void mix(const AttentionArgs& a, const Scratch& s, int first, int vectors, int group, int low, int high) {
    using Type = typename Format::Type;
    for (int key = low, count; key < high; key += count) {
        int position = group * kGroup + key, offset = position % a.block_size;
        count = high - key < a.block_size - offset ? high - key : a.block_size - offset;
        const Type* page = (const Type*)a.values + a.table[position / a.block_size] * a.block_stride;
        accumulate_any<Format>(vectors, s.span + first * s.partial_stride, s.partial_stride,
                               s.weights + first * kGroup + key, kGroup, page + offset * a.value_stride, a.value_stride,
                               kLanes, count, a.value_stride / kLanes);
    }
}

// The pages of a group lie apart, where the hardware's prefetching ends.
template <class Format>
INLINE void prefetch_group(const AttentionArgs& a, int group, int last_key) {
    using Type = typename Format::Type;
    constexpr int line = 64 / sizeof(Type);
    for (int key = group * kGroup; key < (group + 1) * kGroup && key <= last_key; key += a.block_size) {
        ptrdiff_t block = a.table[key / a.block_size] * a.block_stride;
        const Type *keys = (const Type*)a.keys + block, *values = (const Type*)a.values + block;
        for (int i = 0; i < a.head_dim * a.block_size; i += line) __builtin_prefetch(keys + i);
        for (int i = 0; i < a.value_stride * a.block_size; i += line) __builtin_prefetch(values + i);
    }
}

template <class Format>
static void attend_span(const AttentionArgs& a, const Scratch& s, int span) {
    int newest = a.position + a.rows - 1, oldest = a.position - a.window + 1;
    int begin = oldest > span * kSpan ? oldest : span * kSpan;
    int end = newest < (span + 1) * kSpan - 1 ? newest : (span + 1) * kSpan - 1;  // inclusive
    if (begin <= end) prefetch_group<Format>(a, begin / kGroup, end);
    for (int group = begin / kGroup; group <= end / kGroup; group++) {
        prefetch_group<Format>(a, group + 1, end);
        int key = group * kGroup, vectors = a.rows * a.heads;
        score<Format>(a, s, vectors, group, newest + 1 - key < kGroup ? newest + 1 - key : kGroup);
        bool whole = key > newest - a.window && key + kGroup - 1 <= a.position;  // every row sees all of it
        for (int row = 0; row < a.rows; row++) {
            int low = whole || oldest + row < key ? 0 : oldest + row - key;
            int high = whole || a.position + row - key >= kGroup ? kGroup : a.position + row + 1 - key;
            if (low >= high) continue;
            for (int i = row * a.heads; i < (row + 1) * a.heads; i++)
                soften(s.weights + i * kGroup, {s.span + i * s.partial_stride, a.value_stride}, low, high, a.scale);
            if (!whole) mix<Format>(a, s, row * a.heads, a.heads, group, low, high);
        }
        if (whole) mix<Format>(a, s, 0, vectors, group, 0, kGroup);
    }
}

template <class Format>
static void attention(const AttentionArgs& a) {
    Scratch s = divide_scratch(a);
    int vectors = a.rows * a.heads;
    for (int i = 0; i < vectors; i++) {
        const float* q = a.q + (i / a.heads) * a.q_stride + (i % a.heads) * a.head_dim;
        memcpy(s.q + i * s.q_stride, q, (size_t)a.head_dim * sizeof(float));
        clear({s.total + i * s.partial_stride, a.value_stride});
    }
    for (int span = a.span_begin; span < a.span_end; span++) {
        for (int i = 0; i < vectors; i++) clear({s.span + i * s.partial_stride, a.value_stride});
        attend_span<Format>(a, s, span);
        for (int i = 0; i < vectors; i++)
            join({s.total + i * s.partial_stride, a.value_stride}, {s.span + i * s.partial_stride, a.value_stride});
    }
    for (int i = 0; i < vectors; i++) {
        float* total = s.total + i * s.partial_stride;
        if (a.partial) memcpy(a.partial + i * s.partial_stride, total, s.partial_stride * sizeof(float));
        else finish({total, a.value_stride}, a.head_dim,
                    a.out + (i / a.heads) * a.out_stride + (i % a.heads) * a.head_dim);
    }
}

// Joins the spans of a vector, `span_stride` floats apart, as `attention` does when it walks them itself.
static void join_spans(float* partials, int spans, ptrdiff_t span_stride, int head_dim, int value_stride, float* out) {
    for (int span = 1; span < spans; span++)
        join({partials, value_stride}, {partials + span * span_stride, value_stride});
    finish({partials, value_stride}, head_dim, out);
}

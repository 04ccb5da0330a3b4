// Paged causal attention: keys in spans at absolute positions, one softmax over the scores of a span, spans joined in
// order (arXiv 1805.02867). Hidden keys take no part, not even as zeros.
#pragma once

#include "fuse.hpp"

constexpr int kFewVectors = 8;  // more share a conversion of keys and values to float32, and need not wait for memory

template <class Type>
constexpr bool kScaled = std::is_same<Type, int8_t>::value;

// What is known of one query vector's result after some keys: sum of 2^(score - maximum) and that sum of values.
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
    float before = exp2_32(total.maximum() - maximum), after = exp2_32(next.maximum() - maximum);
    total.maximum() = maximum;
    total.sum() = total.sum() * before + next.sum() * after;
    for (int i = 0; i < total.stride; i += kLanes)
        store(total.values + i, load(total.values + i) * splat(before) + load(next.values + i) * splat(after));
}

// sink: null, or a score that comes last and has no value.
static void finish(Partial p, int head_dim, const float* sink, float* out) {
    float before = 1.0f, sum = p.sum();
    if (sink) {
        float score = *sink * kLog2E, maximum = p.maximum() > score ? p.maximum() : score;
        before = exp2_32(p.maximum() - maximum);
        sum = sum * before + exp2_32(score - maximum);
    }
    Vec inverse = splat(1.0f / sum), factor = splat(before);
    int whole = head_dim / kLanes * kLanes;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(p.values + i) * factor * inverse);
    if (whole < head_dim) store_first(out + whole, load(p.values + whole) * factor * inverse, head_dim - whole);
}

// Of a format with scales, those of a span: a key's scale is a factor of its score, a value's one of its weight.
struct Scales {
    float keys[kSpan], values[kSpan];
};

// Turns the scores of one vector's span, capped if there is a cap, into weights 2^(score - maximum). Only keys low to
// high are seen.
template <bool Scaled>
INLINE void soften(float* scores, Partial p, int low, int high, float cap, const Scales* scales) {
    int begin = low / kLanes * kLanes, end = padded(high, kLanes);
    for (int i = begin; Scaled && i < end; i += kLanes) store(scores + i, load(scores + i) * load(scales->keys + i));
    for (int i = begin; cap && i < end; i += kLanes) store(scores + i, tanh32(load(scores + i)) * splat(cap));
    for (int i = begin; i < low; i++) scores[i] = -__builtin_inff();
    for (int i = high; i < end; i++) scores[i] = -__builtin_inff();
    Vec top = load(scores + begin);
    for (int i = begin + kLanes; i < end; i += kLanes) top = greater(top, load(scores + i));
    p.maximum() = largest(top);
    Vec total = splat(0.0f), maximum = splat(p.maximum());
    for (int i = begin; i < end; i += kLanes) {
        Vec weights = exp2_32(load(scores + i) - maximum);
        store(scores + i, Scaled ? weights * load(scales->values + i) : weights);
        total = total + weights;
    }
    p.sum() = sum(total);
}

// The scratch of a task; query vectors stand row by row, `heads` to a row.
struct Scratch {
    float* q;        // [vectors][head_dim padded to lanes], scaled
    float* scores;   // [vectors][kScores], then weights
    float* span;     // [vectors] results of this span
    float* total;    // [vectors] and of the spans up to it
    float* wide;     // a group's keys or values as float32
    Scales* scales;  // of this span
    ptrdiff_t q_stride, partial_stride;
};

INLINE Scratch divide_scratch(const AttentionArgs& a) {
    ptrdiff_t vectors = a.rows * a.heads, q_stride = padded(a.head_dim, kLanes);
    ptrdiff_t partial_stride = (ptrdiff_t)partial_size(a.value_stride);
    float* scores = a.scratch + vectors * q_stride;
    float* span = scores + vectors * kScores;
    float* total = span + vectors * partial_stride;
    float* wide = total + vectors * partial_stride;
    auto* scales = (Scales*)(wide + kGroup * a.value_stride);
    return {a.scratch, scores, span, total, wide, scales, q_stride, partial_stride};
}

// Keys that lie together in memory: whole strips, at most a group.
INLINE int run_length(const AttentionArgs& a) { return a.block_size % kGroup ? kLanes : kGroup; }

INLINE const char* page_at(const AttentionArgs& a, const void* base, int position) {
    return (const char*)base + a.table[position / a.block_size] * a.block_stride;
}

// The keys (stride: head_dim) or values (value_stride) of the run at `position`.
template <class Type>
INLINE const Type* run_at(const AttentionArgs& a, const void* base, int position, int stride) {
    return (const Type*)page_at(a, base, position) + (ptrdiff_t)(position % a.block_size) * stride;
}

// Scales of the keys in the run at `position` and of its values, as many strips as are needed of it.
INLINE void copy_scales(const AttentionArgs& a, int position, int strips, Scales* to) {
    const float* from = (const float*)(page_at(a, a.keys, position) + a.scales) + position % a.block_size;
    for (int i = 0, at = position % kSpan; i < strips * kLanes; i += kLanes) {
        store(to->keys + at + i, load(from + i));
        store(to->values + at + i, load(from + a.block_size + i));
    }
}

INLINE void fetch_scales(const AttentionArgs& a, const char* page) {
    for (ptrdiff_t i = 0; i < 2 * a.block_size * (ptrdiff_t)sizeof(float); i += 64) fetch_near(page + a.scales + i);
}

template <class Type>
INLINE void widen(const Type* from, ptrdiff_t count, float* to) {
    for (ptrdiff_t i = 0; i < count; i += kLanes) store(to + i, lanes_of(from + i));
}

// The keys of a span that a tile sees: `begin` to `end`, inclusive; `low` and `high` (exclusive) of one row.
struct Seen {
    int base, begin, end, oldest, newest;  // oldest, newest: what the first row would see without other bounds

    Seen(const AttentionArgs& a, int span) : base(span * kSpan), oldest(a.position - a.window + 1), newest(a.position) {
        int last = newest + a.rows - 1;
        begin = oldest > base ? oldest : base;
        end = last < base + kSpan - 1 ? last : base + kSpan - 1;
    }
    int low(int row) const { return oldest + row > base ? oldest + row : base; }
    int high(int row) const { return (newest + row < end ? newest + row : end) + 1; }
};

// Scores of all vectors with the keys of a span.
template <class Type>
INLINE void score(const AttentionArgs& a, const Scratch& s, const Seen& seen, bool wide) {
    int vectors = a.rows * a.heads, length = run_length(a), strip = a.head_dim * kLanes;
    for (int key = seen.begin / length * length; key <= seen.end; key += length) {
        int left = seen.end + 1 - key, strips = ((left < length ? left : length) + kLanes - 1) / kLanes;
        float* scores = s.scores + (key - seen.base);
        if (kScaled<Type>) {
            copy_scales(a, key, strips, s.scales);
            if (left > length) fetch_scales(a, page_at(a, a.keys, key + length));
        }
        const auto* keys = run_at<Type>(a, a.keys, key, a.head_dim);
        if (wide) {
            widen<Type>(keys, strips * strip, s.wide);
            fuse<float, true>(vectors, strips, scores, kScores, s.q, s.q_stride, s.wide, kLanes, strip, a.head_dim,
                            nullptr);
        } else {
            const auto* values = run_at<Type>(a, a.values, seen.begin / length * length, a.value_stride);
            const auto* next = left > length ? run_at<Type>(a, a.keys, key + length, a.head_dim) : values;
            fuse<Type, true>(vectors, strips, scores, kScores, s.q, s.q_stride, keys, kLanes, strip, a.head_dim,
                               next);
        }
    }
}

// Adds the values of a span, by their weights, to the results of all vectors. next: null, or the keys read afterwards.
template <class Type>
INLINE void mix(const AttentionArgs& a, const Scratch& s, const Seen& seen, bool wide,
                const Type* next) {
    int length = run_length(a), stride = a.value_stride, strips = stride / kLanes;
    for (int key = seen.begin / length * length; key <= seen.end; key += length) {
        const auto* values = run_at<Type>(a, a.values, key, stride);
        if (wide) widen<Type>(values, length * stride, s.wide);
        const auto* later = key + length <= seen.end ? run_at<Type>(a, a.values, key + length, stride) : next;
        bool whole = seen.low(a.rows - 1) <= key && key + length <= seen.high(0);  // every row sees all of it
        for (int row = 0; row < (whole ? 1 : a.rows); row++) {
            int low = seen.low(row) > key ? seen.low(row) : key;
            int high = seen.high(row) < key + length ? seen.high(row) : key + length;
            if (low >= high) continue;
            int first = row * a.heads, count = whole ? a.rows * a.heads : a.heads;
            float* results = s.span + first * s.partial_stride;
            const float* weights = s.scores + first * kScores + (low - seen.base);
            ptrdiff_t offset = (ptrdiff_t)(low - key) * stride;
            if (wide)
                fuse<float, false>(count, strips, results, s.partial_stride, weights, kScores, s.wide + offset, stride,
                                 kLanes, high - low, nullptr);
            else
                fuse<Type, false>(count, strips, results, s.partial_stride, weights, kScores, values + offset, stride,
                                    kLanes, high - low, later);
        }
    }
}

template <class Type>
static void attend_span(const AttentionArgs& a, const Scratch& s, int span, bool wide,
                        const Type* next) {
    Seen seen(a, span);
    score<Type>(a, s, seen, wide);
    for (int row = 0; row < a.rows; row++) {
        int low = seen.low(row) - seen.base, high = seen.high(row) - seen.base;
        for (int i = row * a.heads; low < high && i < (row + 1) * a.heads; i++)
            soften<kScaled<Type>>(s.scores + i * kScores, {s.span + i * s.partial_stride, a.value_stride}, low, high,
                                  a.cap, s.scales);
    }
    mix<Type>(a, s, seen, wide, next);
}

template <class Type>
static void attention(const AttentionArgs& a) {
    Scratch s = divide_scratch(a);
    int vectors = a.rows * a.heads;
    for (int i = 0; i < vectors; i++) {
        const float* q = a.q + (i / a.heads) * a.q_stride + (i % a.heads) * a.head_dim;
        for (int d = 0; d < a.head_dim; d++) s.q[i * s.q_stride + d] = q[d] * a.scale;
        clear({s.total + i * s.partial_stride, a.value_stride});
    }
    bool wide = sizeof(Type) < sizeof(float) && vectors > kFewVectors;
    for (int span = a.span_begin; span < a.span_end; span++) {
        const Type* next = nullptr;
        if (span + 1 < a.span_end) {
            next = run_at<Type>(a, a.keys, (span + 1) * kSpan, a.head_dim);
            if (kScaled<Type>) fetch_scales(a, page_at(a, a.keys, (span + 1) * kSpan));
        }
        for (int i = 0; i < vectors; i++) clear({s.span + i * s.partial_stride, a.value_stride});
        attend_span<Type>(a, s, span, wide, next);
        for (int i = 0; i < vectors; i++)
            join({s.total + i * s.partial_stride, a.value_stride}, {s.span + i * s.partial_stride, a.value_stride});
    }
    ptrdiff_t run_bytes = (ptrdiff_t)(run_length(a) * a.head_dim * sizeof(Type));
    for (ptrdiff_t i = 0; a.next_keys && !wide && i < run_bytes; i += 64) fetch_near((const char*)a.next_keys + i);
    if (kScaled<Type> && a.next_keys && !wide) fetch_scales(a, (const char*)a.next_keys);
    for (int i = 0; i < vectors; i++) {
        float* total = s.total + i * s.partial_stride;
        if (a.partial) memcpy(a.partial + i * s.partial_stride, total, s.partial_stride * sizeof(float));
        else finish({total, a.value_stride}, a.head_dim, a.sinks ? a.sinks + i % a.heads : nullptr,
                    a.out + (i / a.heads) * a.out_stride + (i % a.heads) * a.head_dim);
    }
}

// Joins the spans of a vector, `span_stride` floats apart, as `attention` does when it walks them itself.
static void join_spans(float* partials, int spans, ptrdiff_t span_stride, int head_dim, int value_stride,
                       const float* sink, float* out) {
    for (int span = 1; span < spans; span++)
        join({partials, value_stride}, {partials + span * span_stride, value_stride});
    finish({partials, value_stride}, head_dim, sink, out);
}

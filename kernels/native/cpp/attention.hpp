// Paged causal attention: keys in spans at absolute positions, one softmax over the scores of a span, spans joined in
// order (arXiv 1805.02867). Hidden keys take no part, not even as zeros.
#pragma once

// acc[j][s] = fma(a[j][k], b[k][s], acc[j][s]) for k in order, s being strips of 16 lanes. a: [Rows][a_stride];
// b: [steps][b_stride], its strips b_strip apart; acc: [Rows][acc_stride] in memory, taken as zeros if `Fresh`.
template <class Format, bool Fresh, int Rows, int Strips>
static void fuse_block(float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                       const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps) {
    Vec sums[Rows][Strips];
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) sums[j][s] = Fresh ? splat(0.0f) : load(acc + j * acc_stride + s * kLanes);
    int k = 0;
    do {  // at least one step: otherwise GCC keeps the sums in memory, too
        Vec lanes[Strips];
        for (int s = 0; s < Strips; s++) lanes[s] = Format::load(b + s * b_strip);
        for (int j = 0; j < Rows; j++) {
            Vec x = splat(a[j * a_stride + k]);
            for (int s = 0; s < Strips; s++) sums[j][s] = fma(x, lanes[s], sums[j][s]);
        }
        b += b_stride;
    } while (++k < steps);
    for (int j = 0; j < Rows; j++)
        for (int s = 0; s < Strips; s++) store(acc + j * acc_stride + s * kLanes, sums[j][s]);
}

// For any number of rows, as many at a time as the registers hold: they share what is loaded of b.
template <class Format, bool Fresh, int Strips, int Rows = (kSums + Strips - 1) / Strips>
static void fuse_rows(int rows, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                      const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps) {
    for (; rows >= Rows; rows -= Rows, acc += Rows * acc_stride, a += Rows * a_stride)
        fuse_block<Format, Fresh, Rows, Strips>(acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps);
    if constexpr (Rows > 1)
        if (rows > 0)
            fuse_rows<Format, Fresh, Strips, Rows - 1>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps);
}

template <class Format, bool Fresh>
static void fuse(int rows, int strips, float* acc, ptrdiff_t acc_stride, const float* a, ptrdiff_t a_stride,
                 const typename Format::Type* b, ptrdiff_t b_stride, ptrdiff_t b_strip, int steps) {
    for (; strips >= 4; strips -= 4, acc += 4 * kLanes, b += 4 * b_strip)
        fuse_rows<Format, Fresh, 4>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps);
    for (; strips >= 2; strips -= 2, acc += 2 * kLanes, b += 2 * b_strip)
        fuse_rows<Format, Fresh, 2>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps);
    if (strips) fuse_rows<Format, Fresh, 1>(rows, acc, acc_stride, a, a_stride, b, b_stride, b_strip, steps);
}

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

static void finish(Partial p, int head_dim, float* out) {
    Vec inverse = splat(1.0f / p.sum());
    int whole = head_dim / kLanes * kLanes;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(p.values + i) * inverse);
    if (whole < head_dim) store_first(out + whole, load(p.values + whole) * inverse, head_dim - whole);
}

// Turns the scores of one vector's span into weights 2^(score - maximum). Only keys low to high are seen.
INLINE void soften(float* scores, Partial p, int low, int high) {
    int begin = low / kLanes * kLanes, end = padded(high, kLanes);
    for (int i = begin; i < low; i++) scores[i] = -__builtin_inff();
    for (int i = high; i < end; i++) scores[i] = -__builtin_inff();
    Vec top = load(scores + begin);
    for (int i = begin + kLanes; i < end; i += kLanes) top = greater(top, load(scores + i));
    p.maximum() = largest(top);
    Vec total = splat(0.0f), maximum = splat(p.maximum());
    for (int i = begin; i < end; i += kLanes) {
        Vec weights = exp2_32(load(scores + i) - maximum);
        store(scores + i, weights);
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
    ptrdiff_t q_stride, partial_stride;
};

INLINE Scratch divide_scratch(const AttentionArgs& a) {
    ptrdiff_t vectors = a.rows * a.heads, q_stride = padded(a.head_dim, kLanes);
    ptrdiff_t partial_stride = (ptrdiff_t)partial_size(a.value_stride);
    float* scores = a.scratch + vectors * q_stride;
    float* span = scores + vectors * kScores;
    float* total = span + vectors * partial_stride;
    return {a.scratch, scores, span, total, total + vectors * partial_stride, q_stride, partial_stride};
}

// A group's keys (stride: head_dim) or values (value_stride) from `position` on, which begins a strip.
template <class Format>
INLINE const typename Format::Type* page_at(const AttentionArgs& a, const void* base, int position, int stride) {
    return (const typename Format::Type*)base + a.table[position / a.block_size] * a.block_stride +
           (ptrdiff_t)(position % a.block_size) * stride;
}

template <class Format>
INLINE void widen(const typename Format::Type* from, ptrdiff_t count, float* to) {
    for (ptrdiff_t i = 0; i < count; i += kLanes) store(to + i, Format::load(from + i));
}

// Many vectors share one conversion of a group to float32; a few read it as it is.
template <class Format>
INLINE bool worth_widening(int vectors, int strips) {
    return sizeof(typename Format::Type) < sizeof(float) && vectors * strips > kSums;
}

// Scores of all vectors with the keys of a group up to `high`.
template <class Format>
INLINE void score(const AttentionArgs& a, const Scratch& s, int vectors, int group, int high) {
    int position = group * kGroup, strips = (high + kLanes - 1) / kLanes, strip = a.head_dim * kLanes;
    float* scores = s.scores + position % kSpan;
    const auto* first = page_at<Format>(a, a.keys, position, a.head_dim);
    const auto* second = strips > 1 ? page_at<Format>(a, a.keys, position + kLanes, a.head_dim) : first;
    if (worth_widening<Format>(vectors, strips)) {
        widen<Format>(first, strip, s.wide);
        if (strips > 1) widen<Format>(second, strip, s.wide + strip);
        fuse<F32, true>(vectors, strips, scores, kScores, s.q, s.q_stride, s.wide, kLanes, strip, a.head_dim);
    } else {
        fuse<Format, true>(vectors, strips, scores, kScores, s.q, s.q_stride, first, kLanes, second - first, a.head_dim);
    }
}

// Adds the values of keys low to high of a group, by their weights, to the results of some vectors.
template <class Format>
INLINE void mix(const AttentionArgs& a, const Scratch& s, int first, int vectors, int group, int low, int high) {
    const float* weights = s.scores + first * kScores + group * kGroup % kSpan;
    float* results = s.span + first * s.partial_stride;
    int strips = a.value_stride / kLanes;
    for (int key = low, count; key < high; key += count) {
        int position = group * kGroup + key, left = a.block_size - position % a.block_size;
        count = high - key < left ? high - key : left;
        fuse<Format, false>(vectors, strips, results, s.partial_stride, weights + key, kScores,
                     page_at<Format>(a, a.values, position, a.value_stride), a.value_stride, kLanes, count);
    }
}

// The same with values that stand in `wide`.
INLINE void mix_wide(const AttentionArgs& a, const Scratch& s, int first, int vectors, int group, int low, int high) {
    fuse<F32, false>(vectors, a.value_stride / kLanes, s.span + first * s.partial_stride, s.partial_stride,
              s.scores + first * kScores + group * kGroup % kSpan + low, kScores, s.wide + low * a.value_stride,
              a.value_stride, kLanes, high - low);
}

// The pages of a group lie apart, where the hardware's prefetching ends.
template <class Format>
INLINE void prefetch_group(const AttentionArgs& a, const void* base, int stride, int group, int last_key) {
    constexpr int line = 64 / sizeof(typename Format::Type);
    for (int key = group * kGroup; key < (group + 1) * kGroup && key <= last_key; key += a.block_size) {
        const auto* page = page_at<Format>(a, base, key, stride);
        int values = (a.block_size < kGroup ? a.block_size : kGroup) * stride;
        for (int i = 0; i < values; i += line) __builtin_prefetch(page + i);
    }
}

template <class Format>
static void attend_span(const AttentionArgs& a, const Scratch& s, int span) {
    int newest = a.position + a.rows - 1, oldest = a.position - a.window + 1, base = span * kSpan;
    int begin = oldest > base ? oldest : base;
    int end = newest < base + kSpan - 1 ? newest : base + kSpan - 1;  // inclusive
    int vectors = a.rows * a.heads;
    bool wide = worth_widening<Format>(vectors, a.value_stride / kLanes);
    for (int group = begin / kGroup; group <= end / kGroup; group++) {
        if (!wide) prefetch_group<Format>(a, a.keys, a.head_dim, group + 1, end);
        score<Format>(a, s, vectors, group, end + 1 - group * kGroup < kGroup ? end + 1 - group * kGroup : kGroup);
    }
    auto first_seen = [&](int row) { return oldest + row > base ? oldest + row : base; };
    auto last_seen = [&](int row) { return a.position + row < end ? a.position + row : end; };
    for (int row = 0; row < a.rows; row++) {
        int low = first_seen(row) - base, high = last_seen(row) + 1 - base;
        for (int i = row * a.heads; low < high && i < (row + 1) * a.heads; i++)
            soften(s.scores + i * kScores, {s.span + i * s.partial_stride, a.value_stride}, low, high);
    }
    for (int group = begin / kGroup; group <= end / kGroup; group++) {
        if (!wide) prefetch_group<Format>(a, a.values, a.value_stride, group + 1, end);
        int key = group * kGroup;
        if (wide) {
            int width = a.block_size < kGroup ? a.block_size : kGroup;
            for (int i = 0; i < kGroup && key + i <= end; i += width)
                widen<Format>(page_at<Format>(a, a.values, key + i, a.value_stride), width * a.value_stride,
                              s.wide + i * a.value_stride);
        }
        bool whole = first_seen(a.rows - 1) <= key && key + kGroup - 1 <= last_seen(0);  // every row sees all of it
        for (int row = 0; row < (whole ? 1 : a.rows); row++) {
            int low = first_seen(row) > key ? first_seen(row) - key : 0;
            int high = last_seen(row) + 1 - key < kGroup ? last_seen(row) + 1 - key : kGroup;
            if (low >= high) continue;
            int count = whole ? vectors : a.heads;
            if (wide) mix_wide(a, s, row * a.heads, count, group, low, high);
            else mix<Format>(a, s, row * a.heads, count, group, low, high);
        }
    }
}

template <class Format>
static void attention(const AttentionArgs& a) {
    Scratch s = divide_scratch(a);
    int vectors = a.rows * a.heads;
    for (int i = 0; i < vectors; i++) {
        const float* q = a.q + (i / a.heads) * a.q_stride + (i % a.heads) * a.head_dim;
        for (int d = 0; d < a.head_dim; d++) s.q[i * s.q_stride + d] = q[d] * a.scale;
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

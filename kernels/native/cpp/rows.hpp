// Operations on single rows: quantization, rounding, norm, gate, sums, scale, cap, rotation.
#pragma once

template <int Planes>
static void quantize_row(const float* x, int columns, void* blocks, int row, int rows) {
    int groups = groups_of(columns);
    auto* out = (Activation<Planes>*)blocks + activation_index(row, 0, rows, groups);
    int step = block_height(row, rows);
    for (int k = 0; k < groups; k++, x += kGroup, out += step) {
        int left = columns - k * kGroup;
        Vec a = left >= kLanes ? load(x) : load_first(x, left);
        Vec b = left >= kGroup ? load(x + kLanes) : load_first(x + kLanes, left > kLanes ? left - kLanes : 0);
        quantize_group<Planes>(a, b, out);
    }
}

// Loads everything, in the widest way there is; the result only keeps the compiler from leaving it out.
static int32_t read(const void* data, size_t bytes) {
    const int32_t* p = (const int32_t*)data;
    Int seen[4] = {splat_int(0), splat_int(0), splat_int(0), splat_int(0)};
    for (size_t done = 0; done + 1024 <= bytes; done += 1024, p += 256)
        for (int i = 0; i < 256; i += kLanes) seen[i / kLanes % 4] = seen[i / kLanes % 4] | load_int(p + i);
    return sum(seen[0] | seen[1] | seen[2] | seen[3]);
}

static void round_to_half(const float* x, int count, uint16_t* out) {
    int whole = count / kLanes * kLanes, rest = count - whole;
    for (int i = 0; i < whole; i += kLanes) store_f16(out + i, load(x + i));
    for (int i = 0; i < rest; i++) out[whole + i] = half_of_float(x[whole + i]);
}

// As `quantize_group` in one plane, but all values share the scale.
static float round_to_int8(const float* x, int count, int8_t* out) {
    const Int magnitude = splat_int(0x7fffffff);
    int whole = count / kLanes * kLanes, rest = count - whole;
    Vec last = rest ? load_first(x + whole, rest) : splat(0.0f);
    Int most = as_int(last) & magnitude;
    for (int i = 0; i < whole; i += kLanes) most = greater(most, as_int(load(x + i)) & magnitude);
    int32_t top = largest(most);
    float peak = float_of_bits((uint32_t)top);
    bool finite = top < 0x7f800000, tiny = peak < 0x1p-100f;
    if (!finite || tiny) {
        memset(out, 0, (size_t)count);
        return finite ? 0.0f : float_of_bits(0x7fc00000);
    }
    Vec inverse = splat(127.0f / peak);
    for (int i = 0; i < whole; i += kLanes) store_int8(out + i, round_to_int(load(x + i) * inverse));
    int8_t codes[kLanes];
    store_int8(codes, round_to_int(last * inverse));
    memcpy(out + whole, codes, (size_t)rest);
    return peak / 127.0f;
}

static void rms_norm(const float* x, const float* weight, int runs, int length, float eps, float* out) {
    for (; runs > 0; runs--, x += length, out += length) {
        Vec squares = splat(0.0f);
        int whole = length / kLanes * kLanes, rest = length - whole;
        for (int i = 0; i < whole; i += kLanes) {
            Vec v = load(x + i);
            squares = squares + v * v;
        }
        if (rest) {
            Vec v = load_first(x + whole, rest);
            squares = squares + v * v;
        }
        Vec inverse = splat(1.0f / __builtin_sqrtf(sum(squares) / (float)length + eps));
        for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) * inverse * load(weight + i));
        if (rest) store_first(out + whole, load_first(x + whole, rest) * inverse * load_first(weight + whole, rest), rest);
    }
}

static void gated(Gate kind, const float* gate, const float* up, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    for (int i = 0; i < whole; i += kLanes) store(out + i, gate_values(kind, load(gate + i), load(up + i)));
    if (rest)
        store_first(out + whole, gate_values(kind, load_first(gate + whole, rest), load_first(up + whole, rest)), rest);
}

static void add(const float* a, const float* b, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(a + i) + load(b + i));
    if (rest) store_first(out + whole, load_first(a + whole, rest) + load_first(b + whole, rest), rest);
}

static void add_scaled(const float* x, float factor, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(out + i) + load(x + i) * splat(factor));
    if (rest) store_first(out + whole, load_first(out + whole, rest) + load_first(x + whole, rest) * splat(factor), rest);
}

static void scale(const float* x, float factor, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) * splat(factor));
    if (rest) store_first(out + whole, load_first(x + whole, rest) * splat(factor), rest);
}

static void cap(const float* x, float limit, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    Vec most = splat(limit);
    for (int i = 0; i < whole; i += kLanes) store(out + i, tanh32(load(x + i) / most) * most);
    if (rest) store_first(out + whole, tanh32(load_first(x + whole, rest) / most) * most, rest);
}

// What is above the row's mean.
static void center(const float* x, int columns, float* out) {
    int whole = columns / kLanes * kLanes, rest = columns - whole;
    Vec sums = splat(0.0f);
    for (int i = 0; i < whole; i += kLanes) sums = sums + load(x + i);
    if (rest) sums = sums + load_first(x + whole, rest);
    Vec mean = splat(sum(sums) / (float)columns);
    for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) - mean);
    if (rest) store_first(out + whole, load_first(x + whole, rest) - mean, rest);
}

// cos, sin: of the row's position. Column i turns with column i + turning / 2.
static void rotate_half(const float* x, const float* cos, const float* sin, int heads, int head_dim, int turning,
                        float* out) {
    int half = turning / 2;
    for (; heads > 0; heads--, x += head_dim, out += head_dim) {
        int i = 0;
        for (; i + kLanes <= half; i += kLanes) {
            Vec a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i);
            store(out + i, a * c - b * s);
            store(out + half + i, b * c + a * s);
        }
        for (; i < half; i++) {
            float a = x[i], b = x[half + i];
            out[i] = a * cos[i] - b * sin[i];
            out[half + i] = b * cos[i] + a * sin[i];
        }
        for (i = turning; i < head_dim; i++) out[i] = x[i];
    }
}

// Column 2 i turns with column 2 i + 1: (a, b) becomes (a, b) (cos, cos) + (b, a) (-sin, sin).
static void rotate_interleaved(const float* x, const float* cos, const float* sin, int heads, int head_dim, int turning,
                               float* out) {
    int whole = turning / kLanes * kLanes;
    for (; heads > 0; heads--, x += head_dim, out += head_dim) {
        for (int i = 0; i < whole; i += kLanes) {
            Vec v = load(x + i), sines = negate_even(load_doubled(sin + i / 2));
            store(out + i, v * load_doubled(cos + i / 2) + swap_pairs(v) * sines);
        }
        for (int i = whole; i < turning; i += 2) {
            float a = x[i], b = x[i + 1];
            out[i] = a * cos[i / 2] - b * sin[i / 2];
            out[i + 1] = b * cos[i / 2] + a * sin[i / 2];
        }
        for (int i = turning; i < head_dim; i++) out[i] = x[i];
    }
}

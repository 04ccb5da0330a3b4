// Float values to codes, scales and minima, group by group: what kernels/quantize.py and kernels/least_squares.py do in
// numpy, bit for bit. Values of a last group that are filling have been set by the caller.
#pragma once

static void widen(Format format, const void* values, int count, float* out) {
    int whole = count / kLanes * kLanes;
    const uint16_t* halves = (const uint16_t*)values;
    switch (format) {
        case Format::f16:
            for (int i = 0; i < whole; i += kLanes) store(out + i, load_f16(halves + i));
            for (int i = whole; i < count; i++) out[i] = float_of_half(halves[i]);
            break;
        case Format::bf16:
            for (int i = 0; i < whole; i += kLanes) store(out + i, load_bf16(halves + i));
            for (int i = whole; i < count; i++) out[i] = float_of_bf16(halves[i]);
            break;
        default: memcpy(out, values, (size_t)count * sizeof(float));
    }
}

// Magnitudes compared as integers, where infinity and NaN are the largest.
static float largest_magnitude(const float* values) {
    Int low = splat_int(0x7fffffff), a = as_int(load(values)) & low, b = as_int(load(values + kLanes)) & low;
    return float_of_bits((uint32_t)largest(greater(a, b)));
}

static bool pack_symmetric(const float* values, uint8_t* codes, uint16_t* half, GroupFacts& facts) {
    float span = largest_magnitude(values), exact = span / 127.0f;
    facts = {span, span};
    if (!(exact <= kLargestHalf)) return false;
    *half = half_of_float(exact);
    if (span > float_of_half(*half) * 127.5f) ++*half;  // the next larger
    Vec step = splat(*half ? float_of_half(*half) : 1.0f);
    for (int i = 0; i < kGroup; i += kLanes) {
        Vec steps = lesser(greater(load(values + i) / step, splat(-127.0f)), splat(127.0f));
        store_int8((int8_t*)codes + i, round_to_int(steps));
    }
    return true;
}

// Lines value = scale * code + minimum of sixteen groups, a lane each.
struct Lines {
    Vec scale, minimum;
};

struct Sums {
    Vec error, codes, squares, products;
};

// x: [32][16], a group in each lane. Without the others the errors alone.
template <bool Others>
INLINE Sums sums_of(const float* x, Vec least, Lines lines) {
    Vec zero = splat(0.0f), top = splat(15.0f), inverse = splat(1.0f) / lines.scale;
    Sums sums = {zero, zero, zero, zero};
    for (int i = 0; i < kGroup; i++) {
        Vec value = load(x + i * kLanes);
        Vec code = to_float(round_to_int(lesser(greater((value - lines.minimum) * inverse, zero), top)));
        Vec off = value - (code * lines.scale + lines.minimum);
        sums.error = sums.error + off * off;
        if (!Others) continue;
        sums.codes = sums.codes + code;
        sums.squares = sums.squares + code * code;
        sums.products = sums.products + code * (value - least);
    }
    return sums;
}

INLINE Vec rounded_to_half(Vec values, uint16_t* halves) {
    store_f16(halves, values);
    return load_f16(halves);
}

// better_lines of kernels/least_squares.py. halves: scales, then minima, [2][16].
static void better_lines(const float* x, Vec least, Vec largest, uint16_t* halves) {
    constexpr float kBeyond[] = {-0.5f, 0.0f, 0.25f, 0.5f};
    const Vec zero = splat(0.0f), span = largest - least, count = splat((float)kGroup);
    Vec total = zero;
    for (int i = 0; i < kGroup; i++) total = total + (load(x + i * kLanes) - least);
    Lines kept = {load_f16(halves), load_f16(halves + kLanes)};
    Vec best = sums_of<false>(x, least, kept).error;
    const Vec finest = span * splat(1.0f / 15.98f), coarsest = span * splat(1.0f / 14.0f);
    uint16_t rounded[kLanes];
    for (float below : kBeyond)
        for (float above : kBeyond) {
            Lines lines;
            lines.scale = span * splat(1.0f / (15.0f + below + above));
            lines.minimum = least + splat(below) * lines.scale;
            for (int round = 0; round < 2; round++) {
                lines.scale = rounded_to_half(lesser(greater(lines.scale, finest), coarsest), rounded);
                Vec floor = largest - splat(15.49f) * lines.scale, ceiling = least + splat(0.49f) * lines.scale;
                lines.minimum = rounded_to_half(greater(lesser(lines.minimum, ceiling), floor), rounded);
                Sums sums = round ? sums_of<false>(x, least, lines) : sums_of<true>(x, least, lines);
                // What would move a value further than half a step is set to be no better.
                Vec error = select(largest - lines.minimum > splat(15.5f) * lines.scale, best, sums.error);
                error = select(lines.minimum - least > splat(0.5f) * lines.scale, best, error);
                error = select(lines.scale > zero, error, best);
                Mask better = best > error;
                best = select(better, error, best);
                kept.scale = select(better, lines.scale, kept.scale);
                kept.minimum = select(better, lines.minimum, kept.minimum);
                if (round) break;
                Vec spread = count * sums.squares - sums.codes * sums.codes;
                Vec slope = (count * sums.products - sums.codes * total) / spread;
                lines.scale = select(spread > zero, slope, zero);
                lines.minimum = least + (total - lines.scale * sums.codes) * splat(1.0f / kGroup);
            }
        }
    store_f16(halves, kept.scale);
    store_f16(halves + kLanes, kept.minimum + zero);  // zero has one sign
}

// The line from the least value to the largest one.
static bool whole_line(float least, float largest, uint16_t* scale, uint16_t* minimum) {
    if (!(__builtin_fabsf(least) <= kLargestHalf)) return false;
    uint16_t low = half_of_float(least);
    if (float_of_half(low) > least) low = !(low & 0x7fff) ? 0x8001 : (uint16_t)(low & 0x8000 ? low + 1 : low - 1);
    float span = largest - float_of_half(low), exact = span / 15.0f;
    if (!(exact <= kLargestHalf)) return false;
    *minimum = low;
    *scale = half_of_float(exact);
    if (span > float_of_half(*scale) * 15.5f) ++*scale;  // the next larger
    return true;
}

// Up to sixteen groups at a time; what can't be held is left as it is.
static void pack_lines(const float* values, int count, uint8_t* codes, uint16_t* scales, uint16_t* minima,
                       GroupFacts* facts) {
    alignas(64) float x[kGroup * kLanes];
    for (int i = 0; i < kGroup; i++)
        for (int lane = 0; lane < kLanes; lane++) x[i * kLanes + lane] = values[(lane < count ? lane : 0) * kGroup + i];
    Vec least = load(x), most = least;
    for (int i = 1; i < kGroup; i++) {
        least = lesser(load(x + i * kLanes), least);
        most = greater(load(x + i * kLanes), most);
    }
    float lows[kLanes], highs[kLanes];
    store(lows, least);
    store(highs, most);
    uint16_t halves[2 * kLanes] = {0};
    for (int lane = 0; lane < count; lane++) {
        float peak = largest_magnitude(values + lane * kGroup);
        bool held = peak <= 3.4028235e38f && whole_line(lows[lane], highs[lane], &halves[lane], &halves[kLanes + lane]);
        facts[lane] = {held ? peak : float_of_bits(0x7f800000), highs[lane] - lows[lane]};
    }
    better_lines(x, least, most, halves);
    for (int lane = 0; lane < count; lane++, values += kGroup, codes += kGroup / 2) {
        scales[lane] = halves[lane];
        minima[lane] = halves[kLanes + lane];
        Vec step = splat(scales[lane] ? float_of_half(scales[lane]) : 1.0f), base = splat(float_of_half(minima[lane]));
        int32_t steps[kGroup];
        for (int i = 0; i < kGroup; i += kLanes) {
            Vec offset = (load(values + i) - base) / step;
            store_int(steps + i, round_to_int(lesser(greater(offset, splat(0.0f)), splat(15.0f))));
        }
        for (int i = 0; i < kGroup / 2; i++) codes[i] = (uint8_t)(steps[i] | steps[i + kGroup / 2] << 4);
    }
}

// The codes of a row of nf4, in groups of 32, and the scales that 64 values share (arXiv 2305.14314): the nearest of
// sixteen values between -1 and 1, the smaller one of two that are as near. Returns the largest magnitude.
static float pack_nf4(const float* values, int groups, uint8_t* codes, float* scales) {
    // Halfway from each of the sixteen values to the next.
    constexpr float kBounds[] = {NF4_BOUNDS};
    float most = 0;
    for (int first = 0; first < groups; first += 2, values += 2 * kGroup) {
        float peak = largest_magnitude(values), second = largest_magnitude(values + kGroup);
        peak = second > peak || second != second ? second : peak;
        if (!(peak <= 3.4028235e38f)) return float_of_bits(0x7f800000);
        most = most < peak ? peak : most;
        scales[first / 2] = peak / 127.0f;
        const Vec whole = splat(peak > 0 ? peak : 1.0f), zero = splat(0.0f), one = splat(1.0f);
        for (int group = first; group < first + 2 && group < groups; group++, codes += kGroup / 2) {
            int32_t found[kGroup];
            for (int i = 0; i < kGroup; i += kLanes) {
                Vec share = load(values + (group - first) * kGroup + i) / whole, code = zero;
                for (float bound : kBounds) code = code + select(share > splat(bound), one, zero);
                store_int(found + i, round_to_int(code));
            }
            for (int i = 0; i < kGroup / 2; i++) codes[i] = (uint8_t)(found[i] | found[i + kGroup / 2] << 4);
        }
    }
    return most;
}

static void pack_q8(const float* values, int groups, const PackedArrays& out) {
    for (int g = 0; g < groups; g++, values += kGroup)
        if (!pack_symmetric(values, out.codes + g * kGroup, out.scales + g, out.facts[g]))
            out.facts[g].peak = float_of_bits(0x7f800000);
}

static void pack_q4(const float* values, int groups, const PackedArrays& out) {
    for (int g = 0; g < groups; g += kLanes, values += kGroup * kLanes) {
        int count = groups - g < kLanes ? groups - g : kLanes;
        pack_lines(values, count, out.codes + g * kGroup / 2, out.scales + g, out.minima + g, out.facts + g);
    }
}

// The vocabulary-wide parts of the sampler; the rules are those of kernels/sampling.py.
#pragma once

INLINE Vec scaled(Vec scores, Vec best, Vec temperature) { return (scores - best) / temperature; }

// The largest score of each block of kSampleBlock tokens, NaN if it holds one.
static void block_maxima(const SampleArgs& a, float* maxima) {
    const Vec lowest = splat(-__builtin_inff());
    for (int i = a.begin; i < a.end; i += kSampleBlock) {
        Vec top = lowest;
        unsigned broken = 0;
        int left = a.end - i < kSampleBlock ? a.end - i : kSampleBlock;
        for (int j = 0; j < left; j += kLanes) {
            Vec scores = left - j >= kLanes ? load(a.logits + i + j) : load_first(a.logits + i + j, left - j);
            if (left - j < kLanes) {  // the missing lanes repeat the first one
                float lanes[kLanes];
                store(lanes, scores);
                for (int lane = left - j; lane < kLanes; lane++) lanes[lane] = lanes[0];
                scores = load(lanes);
            }
            broken |= bits_of(unordered(scores));
            top = greater(top, scores);
        }
        *maxima++ = broken ? __builtin_nanf("") : largest(top);
    }
}

static int find(const float* scores, int count, float above, float upto, int32_t* found) {
    int total = 0;
    for (int i = 0; i < count; i += kLanes) {
        int left = count - i;
        Vec x = left >= kLanes ? load(scores + i) : load_first(scores + i, left);
        unsigned bits = bits_of(x > splat(above)) & ~bits_of(x > splat(upto));
        if (left < kLanes) bits &= (1u << left) - 1;
        for (; bits; bits &= bits - 1) found[total++] = i + __builtin_ctz(bits);
    }
    return total;
}

// Sum of floor(exp(z) 2^40) over the tokens: exact, so the order does not matter. The 40 bits are counted in two halves
// of 20, each of which fits into int32 for the 1,024 vectors between two emptyings.
static uint64_t mass(const SampleArgs& a) {
    uint64_t total = 0;
    for (int begin = a.begin; begin < a.end; begin += 1024 * kLanes) {
        int end = a.end - begin < 1024 * kLanes ? a.end : begin + 1024 * kLanes;
        Int high = splat_int(0), low = splat_int(0);
        for (int i = begin; i < end; i += kLanes) {
            Vec scores = end - i >= kLanes ? load(a.logits + i) : load_first(a.logits + i, end - i);
            Vec weights = exp32(scaled(scores, splat(a.best), splat(a.temperature)));
            if (end - i < kLanes) {
                float lanes[kLanes];
                store(lanes, weights);
                for (int lane = end - i; lane < kLanes; lane++) lanes[lane] = 0.0f;
                weights = load(lanes);
            }
            Int upper = truncate_to_int(weights * splat(0x1p20f));
            Vec rest = weights - to_float(upper) * splat(0x1p-20f);
            high = high + upper;
            low = low + truncate_to_int(rest * splat(0x1p40f));
        }
        int32_t highs[kLanes], lows[kLanes];
        store_int(highs, high);
        store_int(lows, low);
        for (int lane = 0; lane < kLanes; lane++) total += ((uint64_t)highs[lane] << 20) + (uint64_t)lows[lane];
    }
    return total;
}

// Keeps the better of two tokens: larger score, then lower id.
INLINE void contend(Winner* winner, float score, int32_t token) {
    if (score > winner->score || (score == winner->score && token < winner->token))
        *winner = {score, token};
}

// Gumbel-max over the tokens begin to end. A token can only win if its noise is at least `needed` = winner - z, which
// takes u <= 1 - exp(-exp(-needed)) < exp(-needed), so log2 u < -needed / ln 2. The bits of u as an integer are a lower
// bound of log2 u; only vectors with a token that passes this cheap test are looked at closely.
static void draw(const SampleArgs& a, Winner* winner) {
    const Vec best = splat(a.best), temperature = splat(a.temperature);
    const Vec rate = splat(1.0f / a.temperature), per_nat = splat(0x1.715476p+0f * 0x1p23f);
    float lanes[kLanes];
    int32_t counting[kLanes];
    for (int lane = 0; lane < kLanes; lane++) counting[lane] = lane;
    for (int i = a.begin; i < a.end; i += kLanes) {
        int count = a.end - i < kLanes ? a.end - i : kLanes;
        Vec scores = count == kLanes ? load(a.logits + i) : load_first(a.logits + i, count);
        Int hashes = hash32(token_words(load_int(counting) + splat_int(i)), a.low_key, a.high_key);
        Vec u = (unsigned_to_float(hashes) + splat(0.5f)) * splat(0x1p-32f);
        Vec log2_u = to_float(as_int(u)) - splat(127.0f * 0x1p23f);
        // 0.001 (in units of log2) covers the rounding of both sides many times over.
        Vec gap = (scores - best) * rate - splat(winner->score);
        Vec bound = gap * per_nat + (splat(0.001f) + absolute(gap) * splat(1e-5f)) * splat(0x1p23f);
        if (!bits_of(bound > log2_u)) continue;
        store(lanes, scaled(scores, best, temperature) + gumbel(hashes));
        for (int lane = 0; lane < count; lane++) contend(winner, lanes[lane], i + lane);
    }
}

// z and exp(z) of some scores; count is a multiple of 16.
static void score_weights(const float* scores, int count, float best, float temperature, float* z, float* weights) {
    for (int i = 0; i < count; i += kLanes) {
        Vec value = scaled(load(scores + i), splat(best), splat(temperature));
        store(z + i, value);
        store(weights + i, exp32(value));
    }
}

// z plus the noise of each token; count is a multiple of 16.
static void add_noise(const float* z, const int32_t* ids, int count, uint32_t low_key, uint32_t high_key, float* out) {
    for (int i = 0; i < count; i += kLanes) {
        Int hashes = hash32(token_words(load_int(ids + i)), low_key, high_key);
        store(out + i, load(z + i) + gumbel(hashes));
    }
}

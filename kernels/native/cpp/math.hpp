// Elementary functions from single float32 operations: bit for bit kernels/arithmetic.py and kernels/noise.py.
#pragma once

INLINE Vec exp32(Vec x) {
    const Vec shift = splat(0x1.8p23f + 127);
    Vec r = lesser(splat(88.0f), greater(splat(-88.0f), x));  // this order of operands lets NaN through
    Vec shifted = r * splat(0x1.715476p+0f) + shift;
    Vec n = shifted - shift;
    r = r - n * splat(355.0f / 512);
    r = r - n * splat(-0x1.bd0106p-13f);
    Vec y = r * splat(0x1.6a23d0p-10f);
    y = (y + splat(0x1.123a20p-7f)) * r;
    y = (y + splat(0x1.5558f2p-5f)) * r;
    y = (y + splat(0x1.555492p-3f)) * r;
    y = (y + splat(0x1.fffffcp-2f)) * r;
    y = (y + splat(1.0f)) * r + splat(1.0f);
    return y * as_float(shift_left<23>(as_int(shifted)));
}

// 2^x for x <= 0, within 1.3 units in the last place: 2^n 2^r, n = round(x); exactly 0 below -126.5, NaN stays NaN. 2^r
// is 1 plus a minimax fit, relative error 1e-7.
INLINE Vec exp2_32(Vec x) {
    const Vec shift = splat(0x1.8p23f + 127);
    Vec r = greater(splat(-127.0f), x);  // this order of operands lets NaN through
    Vec shifted = r + shift;
    r = r - (shifted - shift);
    Vec y = fma(r, splat(0x1.5bda40p-10f), splat(0x1.3ce8acp-7f));
    y = fma(r, y, splat(0x1.c6b6d8p-5f));
    y = fma(r, y, splat(0x1.ebf9c2p-3f));
    y = fma(r, y, splat(0x1.62e42ap-1f));
    y = fma(r, y, splat(1.0f));
    return y * as_float(shift_left<23>(as_int(shifted)));
}

INLINE float exp2_32(float x) {
    float lanes[kLanes];
    store(lanes, exp2_32(splat(x)));
    return lanes[0];
}

INLINE Vec absolute(Vec x) { return as_float(as_int(x) & splat_int(0x7fffffff)); }

INLINE Vec tanh32(Vec x) {
    Vec z = x * x, y = z * splat(-0x1.75e1d4p-8f);
    y = (y + splat(0x1.52269cp-6f)) * z;
    y = (y + splat(-0x1.b83c5ap-5f)) * z;
    y = (y + splat(0x1.110726p-3f)) * z;
    y = (y + splat(-0x1.555532p-2f)) * z;
    Vec near = y * x + x, magnitude = absolute(x);
    Vec far = splat(1.0f) - splat(2.0f) / (exp32(magnitude + magnitude) + splat(1.0f));
    far = as_float(as_int(far) | (as_int(x) & splat_int((int32_t)0x80000000)));
    return select(magnitude > splat(0.625f), far, near);
}

INLINE Vec silu(Vec x) { return x / (splat(1.0f) + exp32(splat(0.0f) - x)); }

static Vec gelu_tanh(Vec x) {
    Vec u = (x * x * splat(0x1.2444f2p-4f) + splat(0x1.988454p+0f)) * x;
    return x / (splat(1.0f) + exp32(splat(0.0f) - u));
}

static Vec gelu(Vec x) {
    Vec t = splat(1.0f) / (absolute(x) * splat(0.34375f) + splat(1.0f));
    Vec y = t * splat(-0x1.cb8df4p-6f);
    y = (y + splat(0x1.28dbf8p-3f)) * t;
    y = (y + splat(-0x1.186e04p-2f)) * t;
    y = (y + splat(0x1.8bb624p-3f)) * t;
    y = (y + splat(-0x1.4e2086p-5f)) * t;
    y = (y + splat(0x1.cfd76cp-4f)) * t;
    y = (y + splat(0x1.dd9aa8p-4f)) * t;
    y = (y + splat(0x1.19b90ep-3f)) * t;
    y = (y + splat(0x1.18d1b4p-3f)) * t;
    Vec tail = y * exp32(x * x * splat(-0.5f));
    return x * select(x > splat(0.0f), splat(1.0f) - tail, tail);
}

static Vec clamped(Vec gate, Vec up) {
    const Vec limit = splat(7.0f);
    Vec g = lesser(limit, gate), u = lesser(limit, greater(splat(-7.0f), up));  // NaN gets through
    return (u + splat(1.0f)) * (g / (splat(1.0f) + exp32(splat(0.0f) - g * splat(1.702f))));
}

INLINE Vec gate_values(Gate kind, Vec gate, Vec up) {
    switch (kind) {
        case Gate::silu: return silu(gate) * up;
        case Gate::gelu_tanh: return gelu_tanh(gate) * up;
        case Gate::gelu: return gelu(gate) * up;
        default: return clamped(gate, up);
    }
}

INLINE Vec log32(Vec x) {
    Int bits = as_int(x) - splat_int(0x3F3504F3);
    Vec exponent = to_float(shift_right_signed<23>(bits));
    Vec f = as_float((bits & splat_int(0x7FFFFF)) + splat_int(0x3F3504F3)) - splat(1.0f);
    Vec s = f / (f + splat(2.0f));
    Vec square = s * s;
    Vec series = square * splat((float)(2.0 / 9)) + splat((float)(2.0 / 7));
    series = series * square + splat((float)(2.0 / 5));
    series = series * square + splat((float)(2.0 / 3));
    series = series * square + splat(2.0f);
    return exponent * splat(0.6931472f) + series * s;
}

// float32 of unsigned integers, rounded once: both halves and the first product are exact.
INLINE Vec unsigned_to_float(Int x) {
    return to_float(shift_right<16>(x)) * splat(65536.0f) + to_float(x & splat_int(0xFFFF));
}

INLINE Vec gumbel(Int hashes) {
    const Vec one = splat(1.0f), zero = splat(0.0f);
    Vec u = (unsigned_to_float(hashes) + splat(0.5f)) * splat(0x1p-32f);
    u = lesser(u, splat(1 - 0x1p-24f));
    Vec w = one - u;
    Vec log1p = log32(w) + ((one - w) - u) / w;
    return zero - log32(zero - log1p);
}

INLINE Int token_words(Int ids) {
    Int x = (ids ^ shift_right<16>(ids)) * splat_int(0x7FEB352D);
    x = (x ^ shift_right<15>(x)) * splat_int((int32_t)0x846CA68B);
    return x ^ shift_right<16>(x);
}

INLINE Int hash32(Int words, uint32_t low_key, uint32_t high_key) {
    Int x = (words ^ splat_int((int32_t)low_key)) * splat_int(0x7FEB352D);
    x = (x ^ shift_right<15>(x)) ^ splat_int((int32_t)high_key);
    x = x * splat_int((int32_t)0x846CA68B);
    return x ^ shift_right<16>(x);
}

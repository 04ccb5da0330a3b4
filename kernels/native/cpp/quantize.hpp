// Quantization of activations.
#pragma once

// Integers for one group of values, see Activation. Values that are not finite make scale and sum NaN, and with them
// every product: the magnitudes are compared as integers, where infinity and NaN are the largest.
template <int Planes>
INLINE void quantize_group(Vec a, Vec b, Activation<Planes>* group) {
    const Int magnitude = splat_int(0x7fffffff);
    int32_t top = largest(greater(as_int(a) & magnitude, as_int(b) & magnitude));
    float peak = float_of_bits((uint32_t)top);
    const float limit = Planes == 2 ? 32639.0f : 127.0f;  // 32639 = 256 * 127 + 127
    bool finite = top < 0x7f800000, tiny = peak < 0x1p-100f;
    float inverse = finite && !tiny ? limit / peak : 0.0f;
    Int v[2] = {round_to_int(a * splat(inverse)), round_to_int(b * splat(inverse))};
    if (!finite) v[0] = v[1] = splat_int(0);
    for (int half = 0; half < 2; half++) {
        if (Planes == 2) {
            Int high = shift_right_signed<8>(v[half] + splat_int(128));
            Int low = greater(v[half] - shift_left<8>(high), splat_int(-127));  // AVX2 cannot take -128
            v[half] = shift_left<8>(high) + low;
            store_int8(group->planes[0] + kLanes * half, high);
            store_int8(group->planes[Planes - 1] + kLanes * half, low);
        } else {
            store_int8(group->planes[0] + kLanes * half, v[half]);
        }
    }
    int32_t total = sum(v[0] + v[1]);
    group->scale = tiny ? 0.0f : peak / limit;
    if (!finite) group->scale = float_of_bits(0x7fc00000);
    group->sum = group->scale * (float)total;
    group->offset = -128 * total;
}

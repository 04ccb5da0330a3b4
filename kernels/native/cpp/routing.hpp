// A row's experts: those with the largest router logits, and their weights.
#pragma once

// NaN counts as the largest, so that a row that holds one comes out as NaN; of equal logits the first counts more.
static void route(const float* logits, int experts, int used, bool over_all, int32_t* chosen, float* weights) {
    int count = 0;
    for (int e = 0; e < experts; e++) {
        float key = logits[e] == logits[e] ? logits[e] : __builtin_inff();
        if (count == used && !(key > weights[count - 1])) continue;
        int i = count < used ? count++ : count - 1;
        for (; i > 0 && key > weights[i - 1]; i--) {
            weights[i] = weights[i - 1];
            chosen[i] = chosen[i - 1];
        }
        weights[i] = key;
        chosen[i] = e;
    }
    const float largest = logits[chosen[0]];
    float total = 0.0f;
    if (over_all) {
        Vec sums = splat(0.0f);
        for (int e = 0; e < experts; e += kLanes) {
            float lanes[kLanes];
            for (int i = 0; i < kLanes; i++) lanes[i] = e + i < experts ? logits[e + i] : -__builtin_inff();
            sums = sums + exp32(load(lanes) - splat(largest));
        }
        total = sum(sums);
    }
    for (int first = 0; first < used; first += kLanes) {
        float lanes[kLanes];
        int here = used - first < kLanes ? used - first : kLanes;
        for (int i = 0; i < kLanes; i++) lanes[i] = i < here ? logits[chosen[first + i]] : 0.0f;
        store(lanes, exp32(load(lanes) - splat(largest)));
        for (int i = 0; i < here; i++) weights[first + i] = lanes[i];
    }
    if (!over_all)
        for (int i = 0; i < used; i++) total = total + weights[i];
    for (int i = 0; i < used; i++) weights[i] = weights[i] / total;
}

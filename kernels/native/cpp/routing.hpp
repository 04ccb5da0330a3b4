// A row's experts, and their weights.
#pragma once

// The best keys so far, from the largest down. NaN counts as the largest, so that a row that holds one comes out as NaN; of
// equal keys the first counts more.
struct Choice {
    int32_t* chosen;
    float* best;
    int used, count = 0;

    void offer(float key, int expert) {
        key = key == key ? key : __builtin_inff();
        if (count == used && !(key > best[count - 1])) return;
        int i = count < used ? count++ : count - 1;
        for (; i > 0 && key > best[i - 1]; i--) {
            best[i] = best[i - 1];
            chosen[i] = chosen[i - 1];
        }
        best[i] = key;
        chosen[i] = expert;
    }
};

// The sum of all exp(logit - largest).
static float softmax_total(const float* logits, int experts, float largest) {
    Vec sums = splat(0.0f);
    for (int e = 0; e < experts; e += kLanes) {
        float lanes[kLanes];
        for (int i = 0; i < kLanes; i++) lanes[i] = e + i < experts ? logits[e + i] : -__builtin_inff();
        sums = sums + exp32(load(lanes) - splat(largest));
    }
    return sum(sums);
}

// Logits to scores.
struct Scores {
    bool sigmoid;
    float largest, total;

    Vec operator()(Vec logits) const {
        if (sigmoid) return splat(1.0f) / (splat(1.0f) + exp32(splat(0.0f) - logits));
        return exp32(logits - splat(largest)) / splat(total);
    }
};

static void route(const float* logits, const float* preference, int experts, int used, bool sigmoid, bool over_all,
                  int32_t* chosen, float* weights) {
    Choice choice{chosen, weights, used};
    Scores scores{sigmoid, 0.0f, 1.0f};
    if (!sigmoid && !preference) {  // the largest logits have the largest scores
        for (int e = 0; e < experts; e++) choice.offer(logits[e], e);
        scores.largest = logits[chosen[0]];
        if (over_all) scores.total = softmax_total(logits, experts, scores.largest);
    } else {
        if (!sigmoid) {
            scores.largest = logits[0];
            for (int e = 1; e < experts; e++)
                if (logits[e] > scores.largest) scores.largest = logits[e];
            scores.total = softmax_total(logits, experts, scores.largest);
        }
        for (int first = 0; first < experts; first += kLanes) {
            float keys[kLanes];
            int here = experts - first < kLanes ? experts - first : kLanes;
            store(keys, scores(load_first(logits + first, here)));
            for (int i = 0; i < here; i++) choice.offer(preference ? keys[i] + preference[first + i] : keys[i], first + i);
        }
    }
    for (int first = 0; first < used; first += kLanes) {
        float lanes[kLanes];
        int here = used - first < kLanes ? used - first : kLanes;
        for (int i = 0; i < kLanes; i++) lanes[i] = i < here ? logits[chosen[first + i]] : 0.0f;
        store(lanes, scores(load(lanes)));
        for (int i = 0; i < here; i++) weights[first + i] = lanes[i];
    }
    if (over_all) return;
    float sum = 0.0f;
    for (int i = 0; i < used; i++) sum = sum + weights[i];
    for (int i = 0; i < used; i++) weights[i] = weights[i] / sum;
}

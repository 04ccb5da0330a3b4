#include "shortlist.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "formats.hpp"

namespace native {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDepths[] = {3, 5, 7, 9, 12, 16, kInfinity};  // how far below the best z to look, step by step
constexpr size_t kFewCandidates = 64;                         // sorting so many is as fast as halving them
constexpr int kChunk = 256;

}  // namespace

uint64_t rank_key(float score, int32_t token) {
    uint32_t bits = bits_of_float(score + 0.0f);  // -0 becomes +0: they are equal
    uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (0xFFFFFFFFu - (uint32_t)token);
}

int32_t token_of(uint64_t key) { return (int32_t)(0xFFFFFFFFu - (uint32_t)key); }

Shortlist::Shortlist(const Kernels& kernels, const SampleArgs& row, const float* maxima)
    : kernels_(kernels), row_(row), maxima_(maxima), blocks_(divided(row.end, kSampleBlock)) {}

// Adds the tokens with above < score <= upto.
void Shortlist::collect(float above, float upto) {
    int32_t found[kSampleBlock];
    for (int block = 0; block < blocks_; block++) {
        if (!(maxima_[block] > above)) continue;
        int begin = block * kSampleBlock, size = std::min(kSampleBlock, row_.end - begin);
        int count = kernels_.find(row_.logits + begin, size, above, upto, found);
        for (int i = 0; i < count; i++) {
            int32_t token = begin + found[i];
            candidates_.push_back({rank_key(row_.logits[token], token), 0});
        }
    }
}

// Masses of the candidates from `first` on; returns their sum.
uint64_t Shortlist::weigh(size_t first, float min_p) {
    float scores[kChunk] = {0}, z[kChunk], weights[kChunk];
    uint64_t sum = 0;
    for (size_t begin = first; begin < candidates_.size(); begin += kChunk) {
        int count = (int)std::min(candidates_.size() - begin, (size_t)kChunk);
        Candidate* part = candidates_.data() + begin;
        for (int i = 0; i < count; i++) scores[i] = row_.logits[token_of(part[i].key)];
        kernels_.score_weights(scores, padded(count, kLanes), row_.best, row_.temperature, z, weights);
        for (int i = 0; i < count; i++) {
            sum += part[i].mass = (uint64_t)(weights[i] * 0x1p40f);
            if (weights[i] < min_p) rejected_ = std::max(rejected_, part[i].key);
        }
    }
    return sum;
}

// Drops what has `share` or more of mass before it; the candidates before `first` have `before` and stay. Halves the
// candidates in doubt until few are left.
void Shortlist::cut(size_t first, uint64_t before, double share) {
    auto better = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
    auto at = [&](size_t i) { return candidates_.begin() + (ptrdiff_t)i; };
    size_t low = first, high = candidates_.size();
    while (high - low > kFewCandidates) {
        size_t middle = low + (high - low) / 2;
        std::nth_element(at(low), at(middle), at(high), better);
        uint64_t sum = before;
        for (size_t i = low; i < middle; i++) sum += candidates_[i].mass;
        if ((double)sum < share) {
            before = sum;
            low = middle;
        } else {
            high = middle;
        }
    }
    std::sort(at(low), at(high), better);
    while (low < high && (double)before < share) before += candidates_[low++].mass;
    candidates_.resize(low);
}

void Shortlist::keep_of_best(int top_k, float top_p, float min_p) {
    float above = -kInfinity;
    if (top_k <= blocks_) {  // the k-th largest maximum is a lower bound of the k-th largest score
        std::vector<float> sorted(maxima_, maxima_ + blocks_);
        std::nth_element(sorted.begin(), sorted.begin() + (top_k - 1), sorted.end(), std::greater<float>());
        above = std::nextafter(sorted[(size_t)top_k - 1], -kInfinity);
    }
    collect(above, kInfinity);
    if (candidates_.size() > (size_t)top_k) {
        std::nth_element(candidates_.begin(), candidates_.begin() + top_k, candidates_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.key > b.key; });
        candidates_.resize((size_t)top_k);
    }
    uint64_t total = weigh(0, min_p);
    if (top_p < 1) cut(0, 0, (double)top_p * (double)total);
}

// Each rule keeps the beginning of the order, so it is enough to look down to the first token that one rejects.
void Shortlist::keep_of_all(uint64_t whole, float top_p, float min_p) {
    double share = top_p < 1 ? (double)top_p * (double)whole : (double)kInfinity;
    float upto = kInfinity;
    uint64_t before = 0;
    for (float depth : kDepths) {
        float above = row_.best - depth * row_.temperature;
        size_t first = candidates_.size();
        collect(above, upto);
        uint64_t sum = before + weigh(first, min_p);
        if ((double)sum >= share) return cut(first, before, share);
        if (rejected_) return;
        before = sum;
        upto = above;
    }
}

int32_t Shortlist::draw() const {
    float scores[kChunk] = {0}, z[kChunk], weights[kChunk];
    int32_t ids[kChunk] = {0};
    uint64_t best = 0;
    for (size_t begin = 0; begin < candidates_.size(); begin += kChunk) {
        int count = 0;
        for (size_t i = begin; i < std::min(candidates_.size(), begin + kChunk); i++)
            if (candidates_[i].key > rejected_) ids[count++] = token_of(candidates_[i].key);
        for (int i = 0; i < count; i++) scores[i] = row_.logits[ids[i]];
        int room = padded(count, kLanes);
        kernels_.score_weights(scores, room, row_.best, row_.temperature, z, weights);
        kernels_.add_noise(z, ids, room, row_.low_key, row_.high_key, scores);
        for (int i = 0; i < count; i++) best = std::max(best, rank_key(scores[i], ids[i]));
    }
    return token_of(best);
}

}  // namespace native

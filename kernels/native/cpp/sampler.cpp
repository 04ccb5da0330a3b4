#include "sampler.hpp"

#include <algorithm>
#include <limits>

#include "shortlist.hpp"

namespace native {
namespace {

constexpr int kPart = 128 * kSampleBlock;  // tokens of a task
constexpr float kGreedyBelow = 1e-5f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

}  // namespace

void Sampler::begin(const Step& step, const float* logits, ptrdiff_t stride, int vocabulary, int32_t* tokens) {
    step_ = &step;
    logits_ = logits;
    tokens_ = tokens;
    stride_ = stride;
    vocabulary_ = vocabulary;
    parts_ = divided(vocabulary, kPart);
    blocks_ = divided(vocabulary, kSampleBlock);
    size_t n = (size_t)step.samples;
    rows_.assign(n, Row());
    maxima_.resize(n * (size_t)blocks_);
    masses_.resize(n * (size_t)parts_);
    winners_.resize(n * (size_t)parts_);
    bool any = step.mask_words || step.seen_offsets[step.samples] || step.bias_offsets[step.samples];
    if (any && adjusted_.size() < n * (size_t)stride) adjusted_.resize(n * (size_t)stride);
}

int Sampler::tasks(int stage) const {
    int n = step_->samples;
    if (stage == 0) return n * parts_;
    if (stage != 2) return n;
    auto wants = [](const Row& row) { return row.wants_mass || row.rule == Rule::draw_from_all; };
    return std::any_of(rows_.begin(), rows_.end(), wants) ? n * parts_ : 0;
}

void Sampler::run(int stage, int task) {
    if (stage == 0) scan(task / parts_, task % parts_);
    else if (stage == 1) decide(task);
    else if (stage == 2) sweep(task / parts_, task % parts_);
    else choose(task);
}

SampleArgs Sampler::part_of(int row, int begin, int end) const {
    const Row& r = rows_[(size_t)row];
    return {scores(row), begin, end, r.best, r.temperature, r.low_key, r.high_key};
}

bool Sampler::adjusts(int row) const {
    return step_->mask_words || step_->seen_offsets[row + 1] > step_->seen_offsets[row] ||
           step_->bias_offsets[row + 1] > step_->bias_offsets[row];
}

const float* Sampler::scores(int row) const {
    return (adjusts(row) ? adjusted_.data() : logits_) + row * stride_;
}

// Mask, penalties and bias for the tokens begin to end; begin is a multiple of 32.
void Sampler::adjust(int row, int begin, int end) {
    const float* logits = logits_ + row * stride_;
    float* scores = adjusted_.data() + row * stride_;
    const uint32_t* mask = step_->mask + (ptrdiff_t)row * step_->mask_words;
    if (!step_->mask_words) std::copy(logits + begin, logits + end, scores + begin);
    for (int i = begin; step_->mask_words && i < end; i += 32) {
        uint32_t allowed = mask[i / 32];
        for (int bit = 0, count = std::min(32, end - i); bit < count; bit++)
            scores[i + bit] = allowed >> bit & 1 ? logits[i + bit] : -kInfinity;
    }
    for (int i = step_->seen_offsets[row]; i < step_->seen_offsets[row + 1]; i++) {
        int id = step_->seen_ids[i];
        if (id < begin || id >= end) continue;
        float x = scores[id], count = (float)step_->seen_counts[i];
        x = x > 0 ? x / step_->repetition[row] : x * step_->repetition[row];
        x = x - (count > 0 ? step_->presence[row] : 0.0f);
        scores[id] = x - step_->frequency[row] * count;
    }
    for (int i = step_->bias_offsets[row]; i < step_->bias_offsets[row + 1]; i++) {
        int id = step_->bias_ids[i];
        if (id >= begin && id < end) scores[id] = scores[id] + step_->bias_values[i];
    }
}

void Sampler::scan(int row, int part) {
    int begin = part * kPart, end = std::min(begin + kPart, vocabulary_);
    if (adjusts(row)) adjust(row, begin, end);
    kernels_.block_maxima(part_of(row, begin, end), maxima_.data() + (size_t)row * blocks_ + begin / kSampleBlock);
}

void Sampler::decide(int row) {
    const float* maxima = maxima_.data() + (size_t)row * blocks_;
    const float* scores = this->scores(row);
    float best = -kInfinity;
    bool broken = false;
    int block = 0;
    for (int i = 0; i < blocks_; i++) {
        broken |= maxima[i] != maxima[i];
        if (maxima[i] > best) best = maxima[block = i];
    }
    if (broken || best == kInfinity || best == -kInfinity) {
        tokens_[row] = -1;
        return;
    }
    int32_t token = block * kSampleBlock;
    while (scores[token] != best) token++;

    Row& r = rows_[(size_t)row];
    int top_k = step_->top_k[row];
    float top_p = step_->top_p[row], min_p = step_->min_p[row];
    r.best = best;
    r.limit = top_k > 0 ? std::min(top_k, vocabulary_) : vocabulary_;
    if (top_p <= 0 || min_p >= 1) r.limit = 1;
    tokens_[row] = token;
    if (step_->temperature[row] < kGreedyBelow || r.limit == 1) return;

    r.temperature = step_->temperature[row];
    uint64_t mixed = splitmix64(splitmix64(step_->seeds[row]) + (uint64_t)step_->draw_positions[row]);
    r.low_key = (uint32_t)mixed;
    r.high_key = (uint32_t)(mixed >> 32);
    bool cut = r.limit < vocabulary_ || top_p < 1 || min_p > 0;
    r.rule = cut ? Rule::draw_from_shortlist : Rule::draw_from_all;
    r.wants_mass = r.limit == vocabulary_ && top_p < 1;
    float z[kLanes] = {0}, noisy[kLanes];
    int32_t ids[kLanes] = {token};
    kernels_.add_noise(z, ids, kLanes, r.low_key, r.high_key, noisy);
    r.first = {noisy[0], token};
}

void Sampler::sweep(int row, int part) {
    const Row& r = rows_[(size_t)row];
    size_t at = (size_t)row * parts_ + part;
    SampleArgs args = part_of(row, part * kPart, std::min((part + 1) * kPart, vocabulary_));
    if (r.wants_mass) masses_[at] = kernels_.mass(args);
    if (r.rule == Rule::draw_from_all) kernels_.draw(args, &(winners_[at] = r.first));
}

void Sampler::choose(int row) {
    const Row& r = rows_[(size_t)row];
    if (r.rule == Rule::draw_from_shortlist) {
        Shortlist shortlist(kernels_, part_of(row, 0, vocabulary_), maxima_.data() + (size_t)row * blocks_);
        float top_p = step_->top_p[row], min_p = step_->min_p[row];
        uint64_t whole = 0;
        for (int i = 0; r.wants_mass && i < parts_; i++) whole += masses_[(size_t)row * parts_ + i];
        if (r.limit < vocabulary_) shortlist.keep_of_best(r.limit, top_p, min_p);
        else shortlist.keep_of_all(whole, top_p, min_p);
        tokens_[row] = shortlist.draw();
    }
    if (r.rule == Rule::draw_from_all) {
        const Winner* winners = winners_.data() + (size_t)row * parts_;
        uint64_t best = 0;
        for (int i = 0; i < parts_; i++) best = std::max(best, rank_key(winners[i].score, winners[i].token));
        tokens_[row] = token_of(best);
    }
}

}  // namespace native

// What top_k, top_p and min_p leave of one row's tokens: rule 6 of kernels/sampling.py, without sorting the vocabulary.
#pragma once

#include <vector>

#include "kernels.hpp"

namespace native {

// Tokens as numbers that compare as the rules do: larger score first, then lower id.
uint64_t rank_key(float score, int32_t token);
int32_t token_of(uint64_t key);

class Shortlist {
public:
    // row: the whole row. maxima: of its blocks of kSampleBlock scores; none is NaN or +inf, one is finite.
    Shortlist(const Kernels& kernels, const SampleArgs& row, const float* maxima);

    // Takes the best `top_k` tokens, and of those what top_p of their mass and min_p leave.
    void keep_of_best(int top_k, float top_p, float min_p);

    // Takes what top_p of `whole`, the mass of all tokens, and min_p leave. Where top_p is off, `whole` is not used.
    void keep_of_all(uint64_t whole, float top_p, float min_p);

    // The token with the largest z + noise of those that were kept.
    int32_t draw() const;

private:
    struct Candidate {
        uint64_t key, mass;
    };

    void collect(float above, float upto);
    uint64_t weigh(size_t first, float min_p);
    void cut(size_t first, uint64_t before, double share);

    const Kernels& kernels_;
    SampleArgs row_;
    const float* maxima_;
    int blocks_;
    std::vector<Candidate> candidates_;
    uint64_t rejected_ = 0;  // the best key that min_p rejects: nothing from there on is kept
};

}  // namespace native

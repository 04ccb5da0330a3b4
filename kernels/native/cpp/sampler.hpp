// Draws the next token of each row by the rules of kernels/sampling.py: the same tokens, found with less work.
#pragma once

#include <vector>

#include "kernels.hpp"
#include "step.hpp"

namespace native {

// The stages of one step, to be run in this order; tasks of a stage in any order.
class Sampler {
public:
    explicit Sampler(const Kernels& kernels) : kernels_(kernels) {}

    // logits: [samples][stride]. tokens: [samples], out.
    void begin(const Step& step, const float* logits, ptrdiff_t stride, int vocabulary, int32_t* tokens);

    static constexpr int kStages = 4;
    int tasks(int stage) const;
    void run(int stage, int task);

private:
    enum class Rule { decided, draw_from_all, draw_from_shortlist };

    struct Row {
        Rule rule = Rule::decided;
        float best = 0, temperature = 1;
        int limit = 0;           // tokens that top_k leaves, the vocabulary if it is off
        bool wants_mass = false; // top_p counts the whole vocabulary
        uint32_t low_key = 0, high_key = 0;
        Winner first{0, 0};      // the best token with its noise
    };

    void scan(int row, int part);    // maxima of blocks, after mask, penalties and bias
    void decide(int row);            // greedy and broken rows end here
    void sweep(int row, int part);   // the whole vocabulary, where a row wants it
    void choose(int row);            // the token

    bool adjusts(int row) const;
    void adjust(int row, int begin, int end);
    const float* scores(int row) const;
    SampleArgs part_of(int row, int begin, int end) const;

    const Kernels& kernels_;
    const Step* step_ = nullptr;
    const float* logits_ = nullptr;
    int32_t* tokens_ = nullptr;
    ptrdiff_t stride_ = 0;
    int vocabulary_ = 0, parts_ = 0, blocks_ = 0;
    std::vector<Row> rows_;
    std::vector<float> maxima_;       // [rows][blocks]
    std::vector<uint64_t> masses_;    // [rows][parts]
    std::vector<Winner> winners_;     // [rows][parts]
    std::vector<float> adjusted_;     // [rows][stride], of rows with a mask, penalties or bias
};

}  // namespace native

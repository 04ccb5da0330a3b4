#include "quantize.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.hpp"
#include "team.hpp"

namespace native {
namespace {

constexpr int kValuesPerTask = 1 << 15;  // they fit into a core's cache, widened

size_t code_bytes(Format format) { return format == Format::q8 ? kGroup : kGroup / 2; }

class Quantize : public Job {
public:
    Quantize(const Kernels& kernels, const Quantizing& matrix, int threads)
        : matrix_(matrix), to_((Format)matrix.to), columns_((int)matrix.columns), groups_(groups_of(columns_)),
          padded_(native::padded(columns_, to_ == Format::nf4 ? 2 * kGroup : kGroup)),
          height_(std::max(1, kValuesPerTask / columns_)), kernels_(kernels), scratch_((size_t)threads) {
        for (Scratch& scratch : scratch_) {
            scratch.values.resize((size_t)height_ * padded_);
            scratch.facts.resize((size_t)height_ * groups_);
        }
    }

    int stages() const override { return 1; }
    int tasks(int) override { return (int)((matrix_.rows + height_ - 1) / height_); }

    void run(int, int task, int worker) override {
        Scratch& scratch = scratch_[(size_t)worker];
        int64_t first = (int64_t)task * height_;
        int rows = (int)std::min<int64_t>(height_, matrix_.rows - first);
        for (int r = 0; r < rows; r++) read(first + r, &scratch.values[(size_t)r * padded_], scratch.aligned);
        if (to_ == Format::nf4) return by_rows(first, rows, scratch.values.data());
        size_t group = (size_t)first * groups_;
        PackedArrays out = {matrix_.codes + group * code_bytes(to_), (uint16_t*)matrix_.scales + group,
                            matrix_.minima ? (uint16_t*)matrix_.minima + group : nullptr, scratch.facts.data()};
        (to_ == Format::q4 ? kernels_.pack_q4 : kernels_.pack_q8)(scratch.values.data(), rows * groups_, out);
        for (int r = 0; r < rows; r++) {
            if (to_ == Format::q4) clear_filling(out.codes + ((size_t)(r + 1) * groups_ - 1) * (kGroup / 2));
            judge(first + r, out.scales + (size_t)r * groups_, &scratch.facts[(size_t)r * groups_]);
        }
    }

private:
    struct Scratch {
        std::vector<float> values;
        std::vector<GroupFacts> facts;
        std::vector<uint8_t> aligned;
    };

    void by_rows(int64_t first, int rows, const float* values) const {
        size_t scales = (size_t)(padded_ / (2 * kGroup)), codes = (size_t)groups_ * code_bytes(to_);
        for (int64_t row = first; row < first + rows; row++, values += padded_) {
            matrix_.coarse[row] = 0;  // float32 scales never are
            matrix_.peaks[row] =
                kernels_.pack_nf4(values, groups_, matrix_.codes + row * codes, (float*)matrix_.scales + row * scales);
        }
    }

    // A row of the matrix, its last group filled up.
    void read(int64_t row, float* out, std::vector<uint8_t>& aligned) const {
        const uint8_t* values = matrix_.values + row * matrix_.stride;
        size_t unit = (Format)matrix_.from == Format::f32 ? 4 : 2;
        if ((uintptr_t)values % unit) {  // a file may put them at any address
            aligned.assign(values, values + columns_ * unit);
            values = aligned.data();
        }
        kernels_.widen((Format)matrix_.from, values, columns_, out);
        // Filling counts for nothing: zero has no magnitude, and a value of the group widens no range.
        std::fill(out + columns_, out + padded_, to_ == Format::q4 ? out[columns_ - 1] : 0.0f);
    }

    void clear_filling(uint8_t* codes) const {
        for (int i = columns_ - (groups_ - 1) * kGroup; i < kGroup; i++)
            codes[i % 16] = (uint8_t)(codes[i % 16] & (i < 16 ? 0xf0 : 0x0f));
    }

    void judge(int64_t row, const uint16_t* scales, const GroupFacts* facts) const {
        float peak = 0, span = 0, step = 0;
        for (int g = 0; g < groups_; g++) {
            peak = std::max(peak, facts[g].peak);
            span = std::max(span, facts[g].span);
            step = std::max(step, float_of_half(scales[g]));
        }
        // A row of one value has no span at all.
        float wanted = to_ == Format::q4 ? std::max(span / 15.0f, peak / 30.0f) : peak / 127.0f;
        matrix_.peaks[row] = peak;
        matrix_.coarse[row] = step > wanted * kCoarse && peak > 0;
    }

    const Quantizing& matrix_;
    Format to_;
    int columns_, groups_, padded_, height_;
    const Kernels& kernels_;
    std::vector<Scratch> scratch_;  // one a worker
};

}  // namespace

bool quantize(const Kernels& kernels, const Quantizing& matrix, int threads) {
    Format from = (Format)matrix.from, to = (Format)matrix.to;
    if (from != Format::f32 && from != Format::f16 && from != Format::bf16) return false;
    if (to != Format::q4 && to != Format::q8 && to != Format::nf4) return false;
    Quantize job(kernels, matrix, threads);
    Team::instance().run(job, threads);
    return true;
}

}  // namespace native

// The C functions that kernels/native/library.py calls.
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "bandwidth.hpp"
#include "cpu.hpp"
#include "matrix.hpp"
#include "paged_cache.hpp"
#include "program.hpp"
#include "team.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace native {
namespace {

// Weights and cache of one model. Programs belong to it and are freed with it.
struct Model {
    const Kernels* kernels;
    int threads;
    Arena arena;
    std::vector<std::unique_ptr<Matrix>> matrices;
    std::vector<std::unique_ptr<Program>> programs;
    std::unique_ptr<PagedCache> cache;
};

std::mutex models_mutex;
int models = 0;

}  // namespace
}  // namespace native

using namespace native;

// Sizes of the structures that Python mirrors, a byte each.
EXPORT int64_t native_layout() {
    return (int64_t)sizeof(Source) | (int64_t)sizeof(Op) << 8 | (int64_t)sizeof(Buffer) << 16 |
           (int64_t)sizeof(Limits) << 24 | (int64_t)sizeof(Step) << 32;
}

// Null: this machine or build does not have these kernels.
EXPORT const Kernels* native_kernels(const char* name) { return choose_kernels(name); }

EXPORT const char* native_kernels_name(const Kernels* kernels) { return kernels->name; }

// For the weights and values of the next model; its first program ends it, and so does closing it.
EXPORT void native_reserve(int64_t bytes) { reserve((size_t)bytes); }

EXPORT Model* native_model(const Kernels* kernels, int threads) {
    std::lock_guard<std::mutex> lock(models_mutex);
    models++;
    Model* model = new Model;
    model->kernels = kernels;
    model->threads = threads;
    return model;
}

// The last model takes the threads with it.
EXPORT void native_close(Model* model) {
    end_reserve();
    delete model;
    std::lock_guard<std::mutex> lock(models_mutex);
    if (--models == 0) Team::instance().dismiss();
}

// Null: no memory. That holds for the other functions that make something, too.
// The sources have to stay where they are until `native_fill`.
EXPORT const Matrix* native_matrix(Model* model, const Source* sources, int count, int columns) try {
    model->matrices.push_back(std::make_unique<Matrix>(sources, count, columns, model->arena));
    return model->matrices.back().get();
} catch (const std::bad_alloc&) {
    return nullptr;
}

// Copies the sources of all matrices made since the last call. Memory is the limit, not arithmetic, and the caller's
// other threads have things to do meanwhile: one CPU is left to them.
EXPORT void native_fill(Model* model) {
    for (const auto& matrix : model->matrices) matrix->fill(model->threads > 1 ? model->threads - 1 : 1);
}

EXPORT int64_t native_weight_bytes(const Model* model) { return (int64_t)model->arena.bytes(); }

EXPORT const PagedCache* native_cache(Model* model, int layers, int blocks, int block_size, int kv_heads, int head_dim,
                                      int half) try {
    model->cache = std::make_unique<PagedCache>(layers, blocks, block_size, kv_heads, head_dim, half != 0);
    return model->cache.get();
} catch (const std::bad_alloc&) {
    return nullptr;
}

EXPORT int64_t native_cache_bytes(const PagedCache* cache) { return (int64_t)cache->bytes(); }

EXPORT void native_copy_blocks(Model* model, const int32_t* sources, const int32_t* targets, int count) {
    model->cache->copy_blocks(sources, targets, count);
}

EXPORT Program* native_program(Model* model, const Op* ops, int op_count, const Buffer* buffers, int buffer_count,
                               const Limits* limits) try {
    model->programs.push_back(std::make_unique<Program>(*model->kernels, model->cache.get(), ops, op_count, buffers,
                                                        buffer_count, *limits, model->threads));
    end_reserve();
    return model->programs.back().get();
} catch (const std::bad_alloc&) {
    return nullptr;
}

// 0, or 1 with a sentence in `message` about what is wrong with the step.
EXPORT int native_run(Program* program, const Step* step, char* message, int size) {
    std::string wrong = program->run(*step);
    if (wrong.empty()) return 0;
    strncpy(message, wrong.c_str(), (size_t)size - 1);
    message[size - 1] = 0;
    return 1;
}

EXPORT void* native_buffer(Program* program, int index) { return program->storage(index); }

// Bytes a second; 0: no memory.
EXPORT double native_read_bandwidth(const Model* model, int64_t bytes) try {
    return read_bandwidth(*model->kernels, (size_t)bytes, model->threads);
} catch (const std::bad_alloc&) {
    return 0;
}

// The C functions that kernels/native/library.py calls.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "bandwidth.hpp"
#include "cpu.hpp"
#include "mapped.hpp"
#include "matrix.hpp"
#include "paged_cache.hpp"
#include "program.hpp"
#include "quantize.hpp"
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

// What a call of Python's came to (library.py): only these cross the border, never an exception.
enum Outcome : int { kDone = 0, kWrongStep = 1, kNoMemory = 2, kFailed = 3 };

Outcome told(Outcome outcome, const char* text, char* message, int size) {
    strncpy(message, text, (size_t)size - 1);
    message[size - 1] = 0;
    return outcome;
}

// `call` returns what is wrong with its arguments, empty if nothing.
template <class Call>
Outcome guarded(char* message, int size, Call call) {
    try {
        std::string wrong = call();
        return wrong.empty() ? kDone : told(kWrongStep, wrong.c_str(), message, size);
    } catch (const std::bad_alloc&) {
        return told(kNoMemory, "no memory is left", message, size);
    } catch (const std::exception& error) {
        return told(kFailed, error.what(), message, size);
    } catch (...) {
        return told(kFailed, "an exception of an unknown type", message, size);
    }
}

}  // namespace
}  // namespace native

using namespace native;

// Null: this machine or build does not have these kernels.
EXPORT const Kernels* native_kernels(const char* name) { return choose_kernels(name); }

EXPORT const char* native_kernels_name(const Kernels* kernels) { return kernels->name; }

// For the weights and values of the next model; its first program ends it, and so does closing it.
EXPORT void native_reserve(int64_t bytes) { reserve((size_t)bytes); }

// -1: it can't be guarded.
EXPORT int native_guard(const void* begin, int64_t size) { return guard(begin, (size_t)size); }

EXPORT int native_is_lost(int number) { return is_lost(number); }

EXPORT void native_unguard(int number) { unguard(number); }

// Null: no memory. That holds for the other functions that make something, too.
EXPORT Model* native_model(const Kernels* kernels, int threads) {
    Model* model = new (std::nothrow) Model;
    if (!model) return nullptr;
    model->kernels = kernels;
    model->threads = threads;
    std::lock_guard<std::mutex> lock(models_mutex);
    models++;
    return model;
}

// The last model takes the threads with it.
EXPORT void native_close(Model* model) {
    delete model;
    std::lock_guard<std::mutex> lock(models_mutex);
    if (--models == 0) Team::instance().dismiss();
}

// The sources have to stay where they are until `native_fill`.
EXPORT const Matrix* native_matrix(Model* model, const Source* sources, int count, int columns) try {
    model->matrices.push_back(std::make_unique<Matrix>(sources, count, columns, model->arena));
    return model->matrices.back().get();
} catch (const std::exception&) {
    return nullptr;
}

// Copies the sources of all matrices made since the last call. A matrix of stored blocks that its format can't hold is
// no longer there afterwards.
EXPORT int native_fill(Model* model, int threads, char* message, int size) {
    return guarded(message, size, [&] {
        auto& matrices = model->matrices;
        Matrix::fill(*model->kernels, matrices, threads);
        auto end = std::remove_if(matrices.begin(), matrices.end(), [](const auto& matrix) { return !matrix->held(); });
        bool all = end == matrices.end();
        matrices.erase(end, matrices.end());
        return std::string(all ? "" : "a row can't be held in the format that its blocks become");
    });
}

// Without a model. Its rows are judged in `peaks` and `coarse`.
EXPORT int native_quantize(const Kernels* kernels, int threads, const Quantizing* matrix, char* message, int size) {
    return guarded(message, size, [&] {
        return std::string(quantize(*kernels, *matrix, threads) ? "" : "there is no kernel for these formats");
    });
}

EXPORT int64_t native_weight_bytes(const Model* model) { return (int64_t)model->arena.bytes(); }

EXPORT const PagedCache* native_cache(Model* model, int layers, int blocks, int block_size, const int32_t* kv_heads,
                                      const int32_t* head_dims, int format) try {
    model->cache = std::make_unique<PagedCache>(layers, blocks, block_size, kv_heads, head_dims, (CacheFormat)format);
    return model->cache.get();
} catch (const std::exception&) {
    return nullptr;
}

EXPORT int64_t native_cache_bytes(const PagedCache* cache) { return (int64_t)cache->bytes(); }

EXPORT int native_copy_blocks(Model* model, const int32_t* sources, const int32_t* targets, int count, char* message,
                              int size) {
    return guarded(message, size, [&] { return model->cache->copy_blocks(sources, targets, count); });
}

EXPORT Program* native_program(Model* model, const Op* ops, int op_count, const Buffer* buffers, int buffer_count,
                               const Limits* limits) try {
    model->programs.push_back(std::make_unique<Program>(*model->kernels, model->cache.get(), ops, op_count, buffers,
                                                        buffer_count, *limits, model->threads));
    end_reserve();
    return model->programs.back().get();
} catch (const std::exception&) {
    return nullptr;
}

// An Outcome; a sentence in `message` says what is wrong.
EXPORT int native_run(Program* program, const char* step, int64_t bytes, char* message, int size) {
    return guarded(message, size, [&] { return program->run(step, (size_t)bytes); });
}

EXPORT const int32_t* native_tokens(const Program* program) { return program->tokens(); }

EXPORT int64_t native_expert_bytes(const Program* program) { return program->expert_bytes(); }

EXPORT void* native_buffer(Program* program, int index) { return program->storage(index); }

// Bytes a second, of reading the model's weights, at most so many of them; 0: it has none, or there is no memory.
EXPORT double native_read_bandwidth(const Model* model, int64_t bytes) try {
    return read_bandwidth(*model->kernels, model->matrices, (size_t)bytes, model->threads);
} catch (const std::exception&) {
    return 0;
}

namespace native {
namespace {

template <class T>
constexpr char letter() {
    if constexpr (std::is_void_v<T>) return 'v';
    else if constexpr (std::is_pointer_v<T>) return 'p';
    else if constexpr (std::is_floating_point_v<T>) return sizeof(T) == sizeof(double) ? 'd' : 'f';
    else return sizeof(T) == sizeof(int) ? 'i' : 'q';
}

// As numpy names types: letter and bytes.
template <class T>
std::string type_of() {
    const char* kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
    return kind + std::to_string(sizeof(T));
}

template <class Result, class... Arguments>
std::string letters(Result (*)(Arguments...)) {
    return {letter<Result>(), letter<Arguments>()...};
}

// A line for each function: its result and arguments. One for each field of a structure, in order: where it lies and
// how large it is. One for each count and array of a step, in order. One for each number that has a name in Python, and
// for each format with its figures.
std::string interface() {
    std::string result;
#define FUNCTION(name) result += #name " " + letters(name) + "\n"
    FUNCTION(native_kernels), FUNCTION(native_kernels_name), FUNCTION(native_reserve), FUNCTION(native_guard);
    FUNCTION(native_is_lost), FUNCTION(native_unguard), FUNCTION(native_model);
    FUNCTION(native_close), FUNCTION(native_matrix), FUNCTION(native_fill), FUNCTION(native_weight_bytes);
    FUNCTION(native_quantize);
    FUNCTION(native_cache), FUNCTION(native_cache_bytes), FUNCTION(native_copy_blocks), FUNCTION(native_program);
    FUNCTION(native_run), FUNCTION(native_tokens), FUNCTION(native_expert_bytes), FUNCTION(native_buffer), FUNCTION(native_read_bandwidth);
#undef FUNCTION
    auto add = [&](const char* field, size_t offset, size_t bytes) {
        result += std::string(field) + " " + std::to_string(offset) + " " + std::to_string(bytes) + "\n";
    };
#define FIELD(structure, name) add(#structure "." #name, offsetof(structure, name), sizeof(structure::name))
#define FIELDS_3(structure, a, b, c) FIELD(structure, a), FIELD(structure, b), FIELD(structure, c)
#define FIELDS_4(structure, a, b, c, d) FIELDS_3(structure, a, b, c), FIELD(structure, d)
    FIELDS_4(Source, format, stored, rows, codes), FIELDS_3(Source, codes_row, codes_group, scales);
    FIELDS_3(Source, scales_row, scales_group, minima), FIELDS_3(Source, minima_row, minima_group, mapped), FIELD(Source, finite), FIELD(Source, factor);
    FIELDS_4(Quantizing, from, to, rows, columns), FIELDS_4(Quantizing, values, stride, codes, scales);
    FIELDS_3(Quantizing, minima, peaks, coarse);
    FIELDS_4(Op, kind, samples, planes, layer), FIELDS_4(Op, window, interleaved, length, turning);
    FIELDS_4(Op, gate, limit, experts, used), FIELDS_4(Op, over_all, sigmoid, number, cap);
    FIELDS_4(Op, x, y, out, blocks), FIELDS_4(Op, weight, bias, cos, sin), FIELDS_4(Op, down, down_bias, expert_scales, preference);
    FIELDS_3(View, buffer, offset, columns), FIELDS_3(Buffer, columns, planes, samples);
    FIELDS_4(Limits, rows, samples, sequences, blocks_per_sequence);
#undef FIELDS_4
#undef FIELDS_3
#undef FIELD
    result += "Step " + std::to_string(kStepAlignment) + "\n";
#define COUNT(name) result += "Step." #name "\n";
#define ARRAY(type, name, size) result += "Step." #name " " + type_of<type>() + " " #size "\n";
    STEP_COUNTS(COUNT)
    STEP_ARRAYS(ARRAY)
#undef COUNT
#undef ARRAY
    auto figures = [&](const char* name, std::initializer_list<int> numbers) {
        result += name;
        for (int number : numbers) result += " " + std::to_string(number);
        result += "\n";
    };
#define KIND(name) figures("OpKind." #name, {(int)OpKind::name});
#define GATE(name) figures("Gate." #name, {(int)Gate::name});
#define SCALE(name, ...) figures("Scales." #name, {(int)Scales::name, __VA_ARGS__});
#define TABLE(name, ...) figures("Table." #name, {(int)Table::name, __VA_ARGS__});
#define PACKED(name, bits, run, scales, minima, low, table)                                        \
    figures("Format." #name, {(int)Format::name, bits, run, (int)Scales::scales, minima, low, (int)Table::table, \
                              (int)sizeof(TileOf<Format::name>)});
#define PLAIN(name, type) figures("Format." #name, {(int)Format::name, 8 * (int)sizeof(type)});
#define CACHE(name, type, scale) figures("CacheFormat." #name, {(int)CacheFormat::name, (int)sizeof(type), scale});
#define STORED(name, values, bytes, format) \
    figures("Stored." #name, {(int)Stored::name, values, bytes, (int)Format::format});
    figures("kMostHeadDim", {kMostHeadDim});
    OP_KINDS(KIND) GATES(GATE) SCALE_KINDS(SCALE) TABLES(TABLE) PACKED_FORMATS(PACKED) PLAIN_FORMATS(PLAIN) CACHE_FORMATS(CACHE) STORED_TYPES(STORED)
#undef KIND
#undef GATE
#undef SCALE
#undef TABLE
#undef PACKED
#undef PLAIN
#undef CACHE
#undef STORED
    return result;
}

}  // namespace
}  // namespace native

// What Python mirrors. It calls this before anything else and goes no further if it is not the same, so this function
// stays as it is: with another result it would need another name.
EXPORT const char* native_interface() try {
    static const std::string text = interface();
    return text.c_str();
} catch (const std::bad_alloc&) {
    return "";
}

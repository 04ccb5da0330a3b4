#include "cpu.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace native {
namespace {

// __builtin_cpu_supports also asks whether the system saves the wide registers.
bool runs_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

// Linux keeps the tile registers from a process until it asks for them: the memory that a signal needs grows. It refuses
// where a thread's stack for signals is too small for that.
bool runs_amx() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
    constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // of leaf 7
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    unsigned a, b, c, d;
    return runs_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) && (d & kInt8) &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

bool runs_avx2() {
#if defined(__x86_64__)
    unsigned a, b, c, d;  // not every compiler knows f16c by name
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
#else
    return false;
#endif
}

}  // namespace

const Kernels* choose_kernels(const char* name) {
    bool any = strcmp(name, "auto") == 0;
    if ((any || strcmp(name, "amx") == 0) && amx_kernels() && runs_amx()) return amx_kernels();
    if ((any || strcmp(name, "avx512") == 0) && runs_avx512()) return avx512_kernels();
    if ((any || strcmp(name, "avx2") == 0) && runs_avx2()) return avx2_kernels();
    if (any || strcmp(name, "portable") == 0) return portable_kernels();
    return nullptr;
}

}  // namespace native

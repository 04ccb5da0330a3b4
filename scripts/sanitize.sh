#!/bin/sh
# Builds the native library with the address and undefined-behaviour sanitizers (or, with the argument `thread`, the
# thread sanitizer) and runs its tests against it. A copy of the package under build/ is used; the installed library
# stays as it is. Needs GCC. The Python to use is taken from the environment variable PYTHON, or is `python3`.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
case ${1:-address} in
    address) flags=address,undefined runtimes="libasan.so libubsan.so" ;;
    thread) flags=thread runtimes=libtsan.so ;;
    *) echo "usage: $0 [address|thread] [pytest arguments]" >&2; exit 2 ;;
esac
[ $# -eq 0 ] || shift

copy=build/sanitize
rm -rf "$copy"
mkdir -p "$copy"
cp -r kernels "$copy/kernels"
rm -f "$copy"/kernels/native/_native*
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
objects=
for source in kernels/native/cpp/*.cpp; do
    object=$copy/$(basename "$source" .cpp).o
    g++ -std=c++17 -O1 -g -fno-omit-frame-pointer -ffp-contract=off -fvisibility=hidden -fPIC -pthread \
        -fsanitize="$flags" -fno-sanitize-recover=all -c "$source" -o "$object" &
    objects="$objects $object"
    [ "$(jobs -p | wc -l)" -lt 2 ] || wait
done
wait
# shellcheck disable=SC2086
g++ -shared -pthread -fsanitize="$flags" $objects -o "$copy/kernels/native/_native$suffix"

preload=
for runtime in $runtimes; do preload="$preload $(gcc -print-file-name="$runtime")"; done
# Python itself leaks, and is not instrumented: only what our code does is of interest.
# torch, the oracle of the tests, is not instrumented: its own threads would be reported.
echo race:libtorch >"$copy/suppressions"
PYTHONPATH=$copy LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    TSAN_OPTIONS="suppressions=$PWD/$copy/suppressions die_after_fork=0" \
    "$python" -P -m pytest -p no:cacheprovider tests/kernels/native "$@"

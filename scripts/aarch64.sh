#!/bin/sh
# Builds the native library for aarch64 in a copy under build/, and checks that it gives the same bits under QEMU as the
# installed library gives here with every instruction set of this machine (scripts/digests.py). Takes three minutes.
#
#     scripts/aarch64.sh qemu-aarch64 -L ROOT ROOT/usr/bin/python3.11
#
# The arguments are the command of an aarch64 Python (3.11 or later) with numpy; paths are absolute. Needs the Debian
# packages g++-aarch64-linux-gnu and qemu-user. ROOT may be a folder into which `dpkg -x` has unpacked the arm64 packages
# libc6, libgcc-s1, libstdc++6, zlib1g, libexpat1, libffi8, python3.11-minimal, libpython3.11-minimal and
# libpython3.11-stdlib (`apt-get download NAME:arm64`), with a numpy unpacked into usr/lib/python3/dist-packages (`pip
# download --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 numpy`). The Python of this machine is taken
# from the environment variable PYTHON, or is `python3`.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
python=${PYTHON:-python3}

copy=build/aarch64
rm -rf "$copy"
mkdir -p "$copy"
cp -r engine kernels "$copy"
rm -f "$copy"/kernels/native/_native*
aarch64-linux-gnu-g++ -std=c++17 -O3 -ffp-contract=off -fvisibility=hidden -fPIC -pthread -shared -static-libstdc++ \
    -static-libgcc kernels/native/cpp/*.cpp -o "$copy/kernels/native/_native.so"

"$python" scripts/digests.py >"$copy/expected"
PYTHONPATH=$copy "$@" scripts/digests.py "$copy/expected"

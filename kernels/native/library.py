"""The C++ library: found beside this file, loaded with ctypes, which releases the GIL during calls."""

from __future__ import annotations

import ctypes
import struct
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_void_p,
)
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any


class Source(Structure):
    """A block of rows to be repacked: addresses and byte strides of a canonical weight (matrix.hpp)."""

    _fields_ = [
        ("format", c_int64),
        ("rows", c_int64),
        ("codes", c_void_p),
        ("codes_row", c_int64),
        ("codes_group", c_int64),
        ("scales", c_void_p),
        ("scales_row", c_int64),
        ("scales_group", c_int64),
        ("minima", c_void_p),
        ("minima_row", c_int64),
        ("minima_group", c_int64),
        ("mapped", c_int64),
    ]


class View(Structure):
    """Columns of a buffer (step.hpp); buffer -1 is none."""

    _fields_ = [("buffer", c_int32), ("offset", c_int32), ("columns", c_int32)]


class Op(Structure):
    """A recorded operation (step.hpp)."""

    _fields_ = [
        ("kind", c_int32),
        ("samples", c_int32),
        ("planes", c_int32),
        ("layer", c_int32),
        ("window", c_int32),
        ("interleaved", c_int32),
        ("limit", c_int32),
        ("number", c_float),
        ("x", View),
        ("y", View),
        ("out", View),
        ("blocks", View),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
    ]


class Buffer(Structure):
    """Lasting storage (step.hpp)."""

    _fields_ = [("columns", c_int32), ("planes", c_int32), ("samples", c_int32)]


STEP = struct.Struct("=4i22Q")
"""`Step` of step.hpp: four counts, then the addresses of the arrays; filled anew for every step."""


class StepLimits(Structure):
    """`kernels.interface.Limits`."""

    _fields_ = [
        ("rows", c_int32),
        ("samples", c_int32),
        ("sequences", c_int32),
        ("blocks_per_sequence", c_int32),
    ]


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "native_layout": (c_int64, []),
    "native_kernels": (c_void_p, [c_char_p]),
    "native_kernels_name": (c_char_p, [c_void_p]),
    "native_reserve": (None, [c_int64]),
    "native_model": (c_void_p, [c_void_p, c_int]),
    "native_close": (None, [c_void_p]),
    "native_matrix": (c_void_p, [c_void_p, POINTER(Source), c_int, c_int]),
    "native_fill": (None, [c_void_p]),
    "native_weight_bytes": (c_int64, [c_void_p]),
    "native_cache": (c_void_p, [c_void_p, c_int, c_int, c_int, c_int, c_int, c_int]),
    "native_cache_bytes": (c_int64, [c_void_p]),
    "native_copy_blocks": (None, [c_void_p, c_void_p, c_void_p, c_int]),
    "native_program": (c_void_p, [c_void_p, POINTER(Op), c_int, POINTER(Buffer), c_int, POINTER(StepLimits)]),
    "native_run": (c_int, [c_void_p, c_void_p, c_char_p, c_int]),
    "native_buffer": (c_void_p, [c_void_p, c_int]),
    "native_read_bandwidth": (c_double, [c_void_p, c_int64]),
}


def _find() -> Path:
    folder = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if path.exists():
            return path
    raise OSError("the native library was not built: termchat was installed without a C++17 compiler")


@lru_cache(maxsize=1)
def load() -> CDLL:
    """The library with its signatures declared. OSError: it was not built, or can't be loaded here."""
    path = _find()
    library = CDLL(str(path))
    sizes = [ctypes.sizeof(structure) for structure in (Source, Op, Buffer, StepLimits)] + [STEP.size]
    try:
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        same = library.native_layout() == sum(size << 8 * i for i, size in enumerate(sizes))
    except AttributeError:
        same = False
    if not same:
        raise OSError(
            f"{path.name} was built from other sources than the Python files beside it; install again"
        )
    return library


def kernels(isa: str) -> int | None:
    """Address of the kernels of an instruction set (auto, amx, avx512, avx2, portable); None: not here."""
    address: int | None = load().native_kernels(isa.encode())
    return address


def addressof(array: Any) -> int:
    """Address of a numpy array's first value."""
    address: int = array.__array_interface__["data"][0]
    return address

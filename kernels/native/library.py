"""The C++ library: found beside this file, loaded with ctypes, which releases the GIL during calls."""

from __future__ import annotations

import ctypes
import os
from ctypes import CDLL, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Literal, get_args

from ..cache_format import CACHE_FORMATS
from ..formats import BLOCKS, FORMATS, SCALES, TABLES
from ..interface import Gate
from ..step import ALIGNMENT, ARRAYS, Counts

Kind = Literal[
    "embedding",
    "norm",
    "gated",
    "add",
    "scale",
    "cap",
    "center",
    "rope",
    "kv_write",
    "gather",
    "quantize",
    "route",
    "combine",
    "linear",
    "gated_linear",
    "experts",
    "attention",
    "sample",
]
"""In the order of `OpKind` in step.hpp."""

KINDS = get_args(Kind)
GATES = get_args(Gate)

FORMAT_NUMBERS = {name: number for number, name in enumerate(FORMATS)}
CACHE_FORMAT_NUMBERS = {name: number for number, name in enumerate(CACHE_FORMATS)}
"""`Format` and `CacheFormat` of formats.hpp."""
_REPACKED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4"
STORED_NUMBERS = {type: number for number, type in enumerate(_REPACKED.split())}
"""`Stored` of source.hpp: the types of blocks that the library repacks."""


TILE_OUTPUTS = 16
"""`kLanes` of formats.hpp."""
MOST_HEAD_DIM = 1024
"""`kMostHeadDim` of paged_cache.hpp."""


def _fields(type: Any, names: str) -> list[tuple[str, Any]]:
    """Fields of one type, one behind the other."""
    return [(name, type) for name in names.split()]


class Source(Structure):
    """A block of rows to be repacked: addresses, byte strides (matrix.hpp). stored: type of blocks, or -1."""

    _fields_ = [
        *_fields(c_int64, "format stored rows"),
        *[("codes", c_void_p), *_fields(c_int64, "codes_row codes_group")],
        *[("scales", c_void_p), *_fields(c_int64, "scales_row scales_group")],
        *[("minima", c_void_p), *_fields(c_int64, "minima_row minima_group mapped finite")],
        ("factor", c_double),
    ]


class Quantizing(Structure):
    """A matrix of plain values to be quantized, and where it goes: addresses (quantize.hpp)."""

    _fields_ = [
        *_fields(c_int64, "from to rows columns"),
        *_fields(c_void_p, "values"),
        *_fields(c_int64, "stride"),
        *_fields(c_void_p, "codes scales minima peaks coarse"),
    ]


class View(Structure):
    """Columns of a buffer (step.hpp); buffer -1 is none."""

    _fields_ = _fields(c_int32, "buffer offset columns")


class Op(Structure):
    """A recorded operation (step.hpp)."""

    _fields_ = [
        *_fields(c_int32, "kind samples planes layer window interleaved length turning gate limit"),
        *_fields(c_int32, "experts used over_all sigmoid"),
        *_fields(c_float, "number cap"),
        *_fields(View, "x y out blocks"),
        *_fields(c_void_p, "weight bias cos sin down down_bias expert_scales preference"),
    ]


class Buffer(Structure):
    """Lasting storage (step.hpp)."""

    _fields_ = _fields(c_int32, "columns planes samples")


class StepLimits(Structure):
    """`kernels.program.Limits`."""

    _fields_ = _fields(c_int32, "rows samples sequences blocks_per_sequence")


_STRUCTURES: dict[str, type[Structure]] = {
    "Source": Source,
    "Quantizing": Quantizing,
    "Op": Op,
    "View": View,
    "Buffer": Buffer,
    "Limits": StepLimits,
}
"""By their names in C++."""

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "native_kernels": (c_void_p, [c_char_p]),
    "native_kernels_name": (c_char_p, [c_void_p]),
    "native_reserve": (None, [c_int64]),
    "native_guard": (c_int, [c_void_p, c_int64]),
    "native_is_lost": (c_int, [c_int]),
    "native_unguard": (None, [c_int]),
    "native_model": (c_void_p, [c_void_p, c_int]),
    "native_close": (None, [c_void_p]),
    "native_matrix": (c_void_p, [c_void_p, POINTER(Source), c_int, c_int]),
    "native_fill": (c_int, [c_void_p, c_int, c_char_p, c_int]),
    "native_weight_bytes": (c_int64, [c_void_p]),
    "native_quantize": (c_int, [c_void_p, c_int, POINTER(Quantizing), c_char_p, c_int]),
    "native_cache": (c_void_p, [c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_int]),
    "native_cache_bytes": (c_int64, [c_void_p]),
    "native_copy_blocks": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_char_p, c_int]),
    "native_program": (c_void_p, [c_void_p, POINTER(Op), c_int, POINTER(Buffer), c_int, POINTER(StepLimits)]),
    "native_run": (c_int, [c_void_p, c_void_p, c_int64, c_char_p, c_int]),
    "native_tokens": (c_void_p, [c_void_p]),
    "native_expert_bytes": (c_int64, [c_void_p]),
    "native_buffer": (c_void_p, [c_void_p, c_int]),
    "native_read_bandwidth": (c_double, [c_void_p, c_int64]),
}


def _find() -> Path:
    folder = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if os.path.exists(path):
            return path
    raise OSError("the native library was not built: termchat was installed without a C++17 compiler")


_LETTERS = {None: "v", c_char_p: "p", c_void_p: "p", c_int: "i", c_int64: "q", c_double: "d"}


def _interface() -> str:
    """All that this module has in common with the C++ sources, as they say it (api.cpp)."""
    lines = []
    for name, (result, arguments) in _FUNCTIONS.items():
        letters = [_LETTERS.get(kind, "p") for kind in (result, *arguments)]  # else a pointer to a structure
        lines.append(f"{name} {''.join(letters)}\n")
    for name, structure in _STRUCTURES.items():
        for field, *_ in structure._fields_:
            place = getattr(structure, field)
            lines.append(f"{name}.{field} {place.offset} {place.size}\n")
    lines += [f"Step {ALIGNMENT}\n", *(f"Step.{count}\n" for count in Counts._fields)]
    for name, dtype, shape in ARRAYS:
        lines.append(f"Step.{name} {dtype.str[1:]} {' * '.join(shape)}\n")
    lines.append(f"kMostHeadDim {MOST_HEAD_DIM}\n")
    lines += [f"OpKind.{kind} {number}\n" for number, kind in enumerate(KINDS)]
    lines += [f"Gate.{gate} {number}\n" for number, gate in enumerate(GATES)]
    scales, tables = list(SCALES), list(TABLES)
    for number, name in enumerate(scales):
        lines.append(f"Scales.{name} {' '.join(map(str, (number, *SCALES[name])))}\n")
    for number, name in enumerate(tables):
        lines.append(f"Table.{name} {' '.join(map(str, (number, *TABLES[name])))}\n")
    for number, form in enumerate(FORMATS.values()):
        figures: tuple[int, ...] = ()
        if form.packed:
            table = tables.index(form.table) if form.table else -1
            tile = form.nbytes((TILE_OUTPUTS, form.columns))
            figures = (form.group, scales.index(form.scales), int(form.minima), form.low, table, tile)
        lines.append(f"Format.{form.name} {' '.join(map(str, (number, form.bits, *figures)))}\n")
    for number, cached in enumerate(CACHE_FORMATS.values()):
        lines.append(f"CacheFormat.{cached.name} {number} {cached.value_bytes} {cached.scale_bytes}\n")
    for type, number in STORED_NUMBERS.items():
        values, nbytes, format, _ = BLOCKS[type]
        lines.append(f"Stored.{type} {number} {values} {nbytes} {FORMAT_NUMBERS[format]}\n")
    return "".join(lines)


@lru_cache(maxsize=1)
def load() -> CDLL:
    """The library with its signatures declared. OSError: it was not built, or can't be loaded here."""
    path = _find()
    library = CDLL(str(path))
    try:
        told = library.native_interface  # has had this signature ever since there is one of this name
        told.restype, told.argtypes = c_char_p, []
        same = told() == _interface().encode()
    except AttributeError:
        same = False
    if not same:
        raise OSError(
            f"{path.name} was built from other sources than the Python files beside it; install again"
        )
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_MESSAGE_BYTES = 256
_OUTCOMES: dict[int, type[Exception]] = {1: ValueError, 2: MemoryError, 3: RuntimeError}
"""Of api.cpp; 0 is success."""


class Message:
    """Where a guarded call leaves a sentence about what is wrong; one for each caller."""

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(_MESSAGE_BYTES)

    def call(self, what: str, function: Any, *arguments: Any) -> None:
        """Call a function of the library that ends in (message, size).

        ValueError: its arguments are wrong. MemoryError. RuntimeError: an exception of another kind.
        """
        outcome = function(*arguments, self._text, _MESSAGE_BYTES)
        if outcome:
            raise _OUTCOMES[outcome](f"{what}: {self._text.value.decode(errors='replace')}")


def kernels(isa: str) -> int | None:
    """Address of the kernels of an instruction set (auto, amx, avx512, avx2, portable); None: not here."""
    address: int | None = load().native_kernels(isa.encode())
    return address


def addressof(array: Any) -> int:
    """Address of a numpy array's first value."""
    address: int = array.__array_interface__["data"][0]
    return address

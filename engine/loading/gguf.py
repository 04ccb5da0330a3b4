"""Reader for GGUF files, versions 2 and 3, little-endian (ggml's docs/gguf.md), over a memory map.

A file is untrusted: every count is compared with the bytes left before anything is allocated for it, so a
damaged or hostile file ends in one sentence that names the file and the field, soon and without memory.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..types import EngineError
from .files import map_file
from .stored import BLOCKS, GGUF_TYPES, StoredTensor

MAX_NESTING = 4
MAX_ITEMS = 1 << 22  # strings, keys, arrays and tensors of one header: 16 times the largest vocabulary in use
MAX_STRING = 1 << 26
MAX_NAME = 1024
MAX_ALIGNMENT = 1 << 16
MAX_DIMENSIONS = 4

_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A parsed header.

    metadata: scalars and strings as Python values, arrays of numbers as numpy arrays, other arrays as lists.
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the tensor table; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


class _Cursor:
    """Reads the header front to back; knows the file's name and never looks past its end."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0
        self.items = 0

    def fail(self, reason: str) -> NoReturn:
        raise EngineError("model_invalid", f"{self.path}: {reason}")

    def need(self, nbytes: int, field: str) -> None:
        left = self.size - self.position
        if nbytes > left:
            self.fail(
                f"{field} needs {nbytes} bytes but {left} of the file's {self.size} are left: "
                "the file is cut off or damaged"
            )

    def claim(self, count: int, smallest: int, field: str) -> None:
        """Accept a count of things that take at least `smallest` bytes each."""
        left = self.size - self.position
        if count * smallest > left:
            self.fail(
                f"{field} is {count}, too many for the {left} bytes left of the file's {self.size}: "
                "the file is cut off or damaged"
            )
        self.items += count
        if self.items > MAX_ITEMS:
            self.fail(f"{field} is {count}; a header may hold {MAX_ITEMS} entries in all")

    def number(self, code: str, field: str) -> Any:
        width = struct.calcsize(code)
        self.need(width, field)
        (value,) = struct.unpack_from(code, self.buffer, self.position)
        self.position += width
        return value

    def string(self, field: str, limit: int = MAX_STRING) -> bytes:
        length = self.number("<Q", f"the length of {field}")
        if length > limit:
            self.fail(f"{field} claims {length} bytes; at most {limit} are allowed")
        self.need(length, field)
        start, self.position = self.position, self.position + length
        return self.buffer[start : self.position]

    def name(self, field: str) -> str:
        try:
            return self.string(field, MAX_NAME).decode()
        except UnicodeDecodeError:
            self.fail(f"{field} is not valid UTF-8")

    def strings(self, count: int, field: str) -> list[str]:
        """An array of strings in one tight loop: a vocabulary has 100,000 of them."""
        self.claim(count, 8, f"the length of {field}")
        buffer, size, position = self.buffer, self.size, self.position
        unpack = struct.Struct("<Q").unpack_from
        values: list[str] = []
        append = values.append
        for index in range(count):
            start = position + 8
            if start > size:
                self.position = position
                self.need(8, f"the length of {field}[{index}]")
            position = start + unpack(buffer, position)[0]
            if position > size or position - start > MAX_STRING:
                self.fail(f"{field}[{index}] claims {position - start} bytes but {size - start} are left")
            append(str(buffer[start:position], "utf-8", "replace"))
        self.position = position
        return values

    def value(self, kind: int, field: str, nesting: int = 0) -> Any:
        if kind == _STRING:
            return self.string(field).decode("utf-8", "replace")
        if kind == _ARRAY:
            return self.array(field, nesting + 1)
        if kind not in _SCALARS:
            self.fail(f"{field} has the unknown value type {kind}")
        return self.numbers(kind, 1, field)[0].item()

    def numbers(self, kind: int, count: int, field: str) -> NDArray[Any]:
        dtype = _SCALARS[kind]
        self.need(count * dtype.itemsize, field)
        values = np.frombuffer(self.buffer, np.uint8 if dtype == np.bool_ else dtype, count, self.position)
        self.position += count * dtype.itemsize
        return values != 0 if dtype == np.bool_ else values

    def array(self, field: str, nesting: int) -> Any:
        if nesting > MAX_NESTING:
            self.fail(f"{field} holds arrays nested more than {MAX_NESTING} deep")
        kind = self.number("<I", f"the type of {field}")
        count = self.number("<Q", f"the length of {field}")
        if kind == _STRING:
            return self.strings(count, field)
        if kind in _SCALARS:
            return self.numbers(kind, count, f"{field} ({count} values)")
        self.claim(count, 12, f"the length of {field}")
        return [self.value(kind, f"{field}[{index}]", nesting) for index in range(count)]


def _metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    cursor.claim(count, 13, "the number of metadata keys")
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.name(f"metadata key {index}")
        if key in metadata:
            cursor.fail(f"the metadata key {key!r} stands twice")
        metadata[key] = cursor.value(cursor.number("<I", f"the type of {key!r}"), repr(key))
    return metadata


def _entry(cursor: _Cursor, index: int) -> _Entry:
    name = cursor.name(f"the name of tensor {index}")
    dimensions = cursor.number("<I", f"the number of dimensions of tensor {name!r}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        cursor.fail(f"tensor {name!r} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
    # ggml lists the fastest dimension first.
    shape = tuple(cursor.number("<Q", f"dimension {d} of tensor {name!r}") for d in range(dimensions))[::-1]
    if 0 in shape:
        cursor.fail(f"tensor {name!r} has a zero dimension: {shape}")
    number = cursor.number("<I", f"the type of tensor {name!r}")
    offset = cursor.number("<Q", f"the offset of tensor {name!r}")
    if number not in GGUF_TYPES:
        cursor.fail(f"tensor {name!r} has the type number {number}, which is not supported")
    kind = GGUF_TYPES[number]
    block, width = BLOCKS[kind]
    values = math.prod(shape)
    if values >= 1 << 63:
        cursor.fail(f"tensor {name!r} has dimensions {shape}, whose product exceeds 2^63")
    if shape[-1] % block:
        cursor.fail(f"tensor {name!r}: {kind} needs rows of a multiple of {block} values, not {shape[-1]}")
    return _Entry(name, shape, kind, values // block * width, offset)


def _entries(cursor: _Cursor, count: int) -> list[_Entry]:
    entries = [_entry(cursor, index) for index in range(count)]
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            cursor.fail(f"tensor {entry.name!r} stands twice")
        seen.add(entry.name)
    return entries


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        cursor.fail(f"'general.alignment' is {value!r}; it must be a power of two up to {MAX_ALIGNMENT}")
    return value


def _check_layout(cursor: _Cursor, entries: Iterable[_Entry], data_start: int, alignment: int) -> None:
    """Every tensor lies aligned inside the file and apart from the others."""
    previous: _Entry | None = None
    cut: _Entry | None = None
    needed = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset % alignment:
            cursor.fail(f"tensor {entry.name!r} has the offset {entry.offset}, not a multiple of {alignment}")
        if previous is not None and entry.offset < previous.end:
            cursor.fail(f"the data of tensors {previous.name!r} and {entry.name!r} overlap")
        previous = entry
        needed = data_start + entry.end
        if cut is None and needed > cursor.size:
            cut = entry
    if cut is not None:
        cursor.fail(
            f"the file is incomplete: {needed} bytes are needed and {cursor.size} are present; "
            f"it ends before the end of tensor {cut.name!r}. Download it again"
        )


def read_gguf(path: str | Path) -> GGUFFile:
    """Parse the header of a GGUF file and map its tensors; reads no tensor data.

    Raises EngineError(model_invalid) with one sentence that names the file and the field.
    """
    path = Path(path)
    buffer = map_file(path)
    if buffer is None or buffer[:4] != b"GGUF":
        raise EngineError("model_invalid", f"{path} is not a GGUF file")
    cursor = _Cursor(path, buffer)
    cursor.position = 4
    version = cursor.number("<I", "the version")
    if version & 0xFFFF == 0:
        cursor.fail("big-endian GGUF files are not supported; convert the model to little-endian")
    if version not in (2, 3):
        cursor.fail(f"GGUF version {version} is not supported (2 and 3 are); convert the model again")
    tensor_count = cursor.number("<Q", "the number of tensors")
    key_count = cursor.number("<Q", "the number of metadata keys")
    cursor.claim(tensor_count, 12, "the number of tensors")  # an entry cut off later is named by its field
    metadata = _metadata(cursor, key_count)
    entries = _entries(cursor, tensor_count)
    alignment = _alignment(cursor, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    _check_layout(cursor, entries, data_start, alignment)
    data = np.frombuffer(buffer, np.uint8)
    tensors = {
        entry.name: StoredTensor(
            entry.name, entry.shape, entry.type, data[data_start + entry.offset : data_start + entry.end]
        )
        for entry in entries
    }
    return GGUFFile(path, version, metadata, tensors)

"""Reads the values of a GGUF header front to back. A file is untrusted: see `gguf.py`."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .fields import invalid

MAX_NESTING = 4
MAX_ITEMS = 1 << 22  # strings, keys, arrays and tensors of one header: 16 times the largest vocabulary in use
MAX_STRING = 1 << 26
MAX_NAME = 1024

_BLOCK = 4096
"""Strings that are read at once."""

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


class Cursor:
    """A place in a header; knows the file's name and never looks past its end."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0
        self.items = 0

    def fail(self, reason: str) -> NoReturn:
        """Refuse the file: EngineError(model_invalid)."""
        raise invalid(self.path, reason)

    def need(self, nbytes: int, field: str) -> None:
        """Refuse a file with fewer bytes left."""
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
        """A number, by its code in `struct`."""
        width = struct.calcsize(code)
        self.need(width, field)
        (value,) = struct.unpack_from(code, self.buffer, self.position)
        self.position += width
        return value

    def string(self, field: str, limit: int = MAX_STRING) -> bytes:
        """A string's bytes."""
        length = self.number("<Q", f"the length of {field}")
        if length > limit:
            self.fail(f"{field} claims {length} bytes; at most {limit} are allowed")
        self.need(length, field)
        start, self.position = self.position, self.position + length
        return self.buffer[start : self.position]

    def name(self, field: str) -> str:
        """A key or a tensor's name."""
        try:
            return self.string(field, MAX_NAME).decode()
        except UnicodeDecodeError:
            self.fail(f"{field} is not valid UTF-8")

    def _strings(self, count: int, field: str) -> list[str]:
        """An array of strings; a vocabulary has 100,000 of them."""
        self.claim(count, 8, f"the length of {field}")
        values: list[str] = []
        while len(values) < count:
            block = min(_BLOCK, count - len(values))
            values += self._short_strings(block) or self._any_strings(block, field, len(values))
        return values

    def _short_strings(self, count: int) -> list[str] | None:
        """The next strings, read as one text; None if one is longer than 255 bytes or holds a zero byte."""
        buffer, first, position = self.buffer, self.position, self.position
        starts: list[int] = []
        try:
            for _ in range(count):
                starts.append(position)
                position += 8 + buffer[position]  # the length as far as its lowest byte says
        except IndexError:
            return None
        if position > self.size:
            return None
        text = np.frombuffer(buffer, np.uint8, position - first, first).copy()
        at = np.subtract(starts, first)
        lengths = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))[at]
        text[at] = 0
        if lengths.max() > 255 or np.count_nonzero(text) != len(text) - 8 * count:
            return None
        self.position = position
        return str(text.data[8:], "utf-8", "replace").split("\0" * 8)

    def _any_strings(self, count: int, field: str, first: int) -> list[str]:
        """The next strings, one by one; the first has this index in the field."""
        buffer, size, position = self.buffer, self.size, self.position
        unpack = struct.Struct("<Q").unpack_from
        values: list[str] = []
        for index in range(first, first + count):
            start = position + 8
            if start > size:
                self.position = position
                self.need(8, f"the length of {field}[{index}]")
            position = start + unpack(buffer, position)[0]
            if position > size or position - start > MAX_STRING:
                self.fail(f"{field}[{index}] claims {position - start} bytes but {size - start} are left")
            values.append(str(buffer[start:position], "utf-8", "replace"))
        self.position = position
        return values

    def value(self, kind: int, field: str, nesting: int = 0) -> Any:
        """A value of this type of GGUF's."""
        if kind == _STRING:
            return self.string(field).decode("utf-8", "replace")
        if kind == _ARRAY:
            return self.array(field, nesting + 1)
        if kind not in _SCALARS:
            self.fail(f"{field} has the unknown value type {kind}")
        return self._numbers(kind, 1, field)[0].item()

    def _numbers(self, kind: int, count: int, field: str) -> NDArray[Any]:
        dtype = _SCALARS[kind]
        self.need(count * dtype.itemsize, field)
        values = np.frombuffer(self.buffer, np.uint8 if dtype == np.bool_ else dtype, count, self.position)
        self.position += count * dtype.itemsize
        return values != 0 if dtype == np.bool_ else values

    def array(self, field: str, nesting: int) -> Any:
        """An array of any type: of numbers as a numpy array, else a list."""
        if nesting > MAX_NESTING:
            self.fail(f"{field} holds arrays nested more than {MAX_NESTING} deep")
        kind = self.number("<I", f"the type of {field}")
        count = self.number("<Q", f"the length of {field}")
        if kind == _STRING:
            return self._strings(count, field)
        if kind in _SCALARS:
            return self._numbers(kind, count, f"{field} ({count} values)")
        self.claim(count, 12, f"the length of {field}")
        return [self.value(kind, f"{field}[{index}]", nesting) for index in range(count)]

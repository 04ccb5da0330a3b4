"""Writing tensors to a file whose header comes first but is known last."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from kernels.formats import BLOCKS

Chunks = Iterable[Any]


class Written(NamedTuple):
    """A tensor in the file: its data begin at `offset` of the data, and have so many bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class TensorWriter:
    """Writes data behind room for the header. alignment: of each tensor's data."""

    def __init__(self, file: BinaryIO, room: int, alignment: int) -> None:
        unit = max(alignment, 8)
        self.room = -(-room // unit) * unit
        self.written: list[Written] = []
        self._file, self._alignment, self._position = file, alignment, 0
        file.seek(self.room)

    def add(self, name: str, type: str, shape: tuple[int, ...], chunks: Chunks) -> None:
        """Write a tensor's data, piece by piece. OSError."""
        padding = -self._position % self._alignment
        self._file.write(bytes(padding))
        start = self._position + padding
        self._position = start
        for chunk in chunks:
            self._position += self._file.write(chunk)
        self.written.append(Written(name, type, shape, start, self._position - start))

    def finish(self, header: bytes) -> None:
        """Write the header into its room."""
        assert len(header) <= self.room, "room was made for the largest one"
        self._file.seek(0)
        self._file.write(header)
        self._file.flush()


def gguf_room(metadata: bytes, names: Mapping[str, tuple[int, ...]]) -> int:
    """Bytes of a header with these tensors."""
    return 24 + len(metadata) + sum(24 + len(name.encode()) + 8 * len(shape) for name, shape in names.items())


def gguf_header(metadata: bytes, keys: int, tensors: Iterable[Written]) -> bytes:
    """The header of a GGUF file, version 3 (ggml's docs/gguf.md). metadata: so many keys, as they stand."""
    tensors = list(tensors)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), keys), metadata]
    for tensor in tensors:
        name, shape = tensor.name.encode(), tensor.shape[::-1]
        parts += [struct.pack("<Q", len(name)), name, struct.pack("<I", len(shape))]
        parts.append(struct.pack(f"<{len(shape)}QIQ", *shape, BLOCKS[tensor.type].number, tensor.offset))
    return b"".join(parts)


def safetensors_header(tensors: Iterable[Written], room: int | None = None) -> bytes:
    """The header of a safetensors file, filled up with spaces to `room` bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for tensor in tensors:
        offsets = [tensor.offset, tensor.offset + tensor.nbytes]
        entries[tensor.name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (0 if room is None else room - 8 - len(text))
    return struct.pack("<Q", len(text)) + text

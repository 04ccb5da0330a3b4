"""Reader for safetensors files (the format's own README), alone or in shards, over memory maps.

Untrusted like every model file: lengths, offsets and shapes are checked against the file before use, and an
index can't lead out of its folder.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .fields import cut, invalid, printable, shown
from .files import map_file, parse_json_object
from .folder import Folder
from .recognized import HEAD, no
from .stored import StoredTensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

MAX_HEADER = 1 << 23
MAX_DIMENSIONS = 8

_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, first and last byte of a tensor, from its line in the header."""

    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(name)} {reason}")

    if not isinstance(entry, dict):
        fail("is not described by an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BYTES:
        fail(f"has the unknown dtype {shown(dtype)}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_size, shape)):
        fail("has an invalid shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        fail("has invalid data_offsets")
    start, stop = offsets
    needed = math.prod(shape) * _BYTES[dtype]
    if stop - start != needed:
        fail(f"has {stop - start} bytes of data where its shape {tuple(shape)} of {dtype} needs {needed}")
    return dtype, tuple(shape), start, stop


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, mapped; reads no tensor data.

    Raises EngineError(model_invalid) with one sentence that names the file and the field.
    """

    def fail(reason: str) -> NoReturn:
        raise invalid(path, reason)

    buffer = map_file(path)
    if buffer is None or len(buffer) < 10 or buffer[8:9] != b"{":
        raise invalid(path, no("safetensors", buffer[:HEAD] if buffer is not None else b""), colon=False)
    header_size = int.from_bytes(buffer[:8], "little")
    if header_size > MAX_HEADER:
        fail(f"the header claims {header_size} bytes; {MAX_HEADER} is the limit")
    if header_size > len(buffer) - 8:
        fail(
            f"the file is incomplete: its header alone has {header_size} bytes, "
            f"and {len(buffer)} are present. Download it again"
        )
    header = parse_json_object(buffer[8 : 8 + header_size], path, "the header", unique_keys=True)
    header.pop("__metadata__", None)
    available = len(buffer) - 8 - header_size
    data = np.frombuffer(buffer, np.uint8)[8 + header_size :]
    entries = {name: _entry(path, name, entry) for name, entry in header.items()}
    position = 0
    for name, (_, _, start, stop) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if start != position:
            problem = "overlaps the data before it" if start < position else "leaves a gap before its data"
            fail(f"tensor {shown(name)} {problem}")
        position = stop
        if stop > available:
            needed = 8 + header_size + max(entry[3] for entry in entries.values())
            fail(
                f"the file is incomplete: {needed} bytes are needed and {len(buffer)} are present; "
                f"it ends before the end of tensor {shown(name)}. Download it again"
            )
    if position != available:
        fail(f"{available - position} bytes follow the last tensor")
    return {
        name: StoredTensor(name, shape, dtype, data[start:stop])
        for name, (dtype, shape, start, stop) in entries.items()
    }


def _weight_map(path: Path, index: dict[str, Any]) -> dict[str, str]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise invalid(path, "weight_map is missing or empty")
    for name, entry in weight_map.items():
        if not isinstance(entry, str):
            raise invalid(path, f"weight_map[{shown(name)}] is not a file name")
    return weight_map


def read_shards(folder: Folder, index: dict[str, Any]) -> dict[str, StoredTensor]:
    """The tensors an index lists, each from the file it names; other files of the folder are left alone.

    A tensor that a shard holds beyond the index is returned too, so that it can't be dropped unseen.
    """
    weight_map = _weight_map(folder.path / INDEX, index)
    paths = {entry: folder.file(entry, INDEX) for entry in dict.fromkeys(weight_map.values())}
    tensors: dict[str, StoredTensor] = {}
    for entry, path in paths.items():
        for name, tensor in read_safetensors(path).items():
            if weight_map.get(name, entry) != entry:
                continue
            if name in tensors:
                raise invalid(path, f"tensor {shown(name)} is in another shard as well")
            tensors[name] = tensor
    for name, entry in weight_map.items():
        if name not in tensors:
            raise invalid(
                folder.path,
                f"{printable(cut(entry, 100))} has no tensor {shown(name)}, which {INDEX} says it holds",
            )
    return tensors


def read_folder(folder: Folder) -> dict[str, StoredTensor] | None:
    """The tensors of a model's folder: model.safetensors, or the shards of its index; None without either."""
    single = folder.file(SINGLE)
    if os.path.exists(single):
        return read_safetensors(single)
    index = folder.json(INDEX)
    return None if index is None else read_shards(folder, index)

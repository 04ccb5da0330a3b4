"""Reader for GGUF files, versions 2 and 3, little-endian (ggml's docs/gguf.md), over memory maps.

A file is untrusted: every count is compared with the bytes left before anything is allocated for it, so a
damaged or hostile file ends in one sentence that names the file and the field, soon and without memory.

A model may come in parts, as gguf-split makes them: NAME-00001-of-00003.gguf and so on. The first part holds
the metadata; tensors lie in any of them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels.formats import BLOCKS

from .declared import gguf_family
from .fields import Fields, invalid, shown
from .files import map_file
from .gguf_cursor import Cursor
from .pieces import joining
from .recognized import HEAD, no
from .stored import StoredTensor

MAX_ALIGNMENT = 1 << 16
MAX_DIMENSIONS = 4

_TYPES = {block.number: name for name, block in BLOCKS.items()}
_UNSUPPORTED = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
_UNSUPPORTED |= {41: "Q1_0", 42: "Q2_0"}

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
_MAX_PARTS = 1 << 10


class GGUFFile(NamedTuple):
    """A parsed header.

    metadata: scalars and strings as Python values, arrays of numbers as numpy arrays, other arrays as lists.
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]

    @property
    def name(self) -> str:
        """What to call the model: the file's name, without the number of its part."""
        match = _PART.fullmatch(self.path.name)
        return (f"{match[1]}{match[4]}" if match else self.path.name).removesuffix(".gguf")

    def fields(self, prefix: str = "") -> Fields:
        """The metadata whose keys begin so."""
        return Fields(self.path, self.metadata, prefix)


class _Entry(NamedTuple):
    """A line of the tensor table; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


def open_header(path: Path) -> tuple[Cursor, int, int, int]:
    """A place before the metadata, the version, the number of tensors and that of metadata keys.

    Raises EngineError(model_invalid).
    """
    buffer = map_file(path)
    if buffer is None or buffer[:4] != b"GGUF":
        problem = no("GGUF", buffer[:HEAD] if buffer is not None else b"")
        piece = joining(path.name)
        raise invalid(path, f"{problem}: {piece}" if piece else problem, colon=False)
    cursor = Cursor(path, buffer)
    cursor.position = 4
    version = cursor.number("<I", "the version")
    if version & 0xFFFF == 0:
        cursor.fail("big-endian GGUF files are not supported; convert the model to little-endian")
    if version not in (2, 3):
        cursor.fail(f"GGUF version {version} is not supported (2 and 3 are); convert the model again")
    tensor_count = cursor.number("<Q", "the number of tensors")
    key_count = cursor.number("<Q", "the number of metadata keys")
    cursor.claim(tensor_count, 12, "the number of tensors")  # an entry cut off later is named by its field
    cursor.claim(key_count, 13, "the number of metadata keys")
    return cursor, version, tensor_count, key_count


def _metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for key, value in read_keys(cursor, count):
        if key in metadata:
            cursor.fail(f"the metadata key {shown(key)} stands twice")
        metadata[key] = value
    return metadata


def read_keys(
    cursor: Cursor, count: int, enough: Callable[[str], bool] = lambda key: False
) -> Iterator[tuple[str, Any]]:
    """The metadata, key by key as it stands in the file; it ends before a key for which that is `enough`."""
    for index in range(count):
        key = cursor.name(f"metadata key {index}")
        if enough(key):
            return
        yield key, cursor.value(cursor.number("<I", f"the type of {shown(key)}"), shown(key))


def _entry(cursor: Cursor, index: int, metadata: dict[str, Any]) -> _Entry:
    name = cursor.name(f"the name of tensor {index}")
    dimensions = cursor.number("<I", f"the number of dimensions of tensor {shown(name)}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        cursor.fail(f"tensor {shown(name)} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
    # ggml lists the fastest dimension first.
    shape = tuple(cursor.number("<Q", f"dimension {d} of tensor {shown(name)}") for d in range(dimensions))[
        ::-1
    ]
    if 0 in shape:
        cursor.fail(f"tensor {shown(name)} has a zero dimension: {shape}")
    number = cursor.number("<I", f"the type of tensor {shown(name)}")
    offset = cursor.number("<Q", f"the offset of tensor {shown(name)}")
    if number not in _TYPES:
        if "general.architecture" in metadata:  # a model that is not supported anyway is refused as such
            gguf_family(Fields(cursor.path, metadata))
        known = f" ({_UNSUPPORTED[number]})" if number in _UNSUPPORTED else ""
        cursor.fail(f"tensor {shown(name)} has the type number {number}{known}, which is not supported")
    kind = _TYPES[number]
    block, width, *_ = BLOCKS[kind]
    values = math.prod(shape)
    if values >= 1 << 63:
        cursor.fail(f"tensor {shown(name)} has dimensions {shape}, whose product exceeds 2^63")
    if shape[-1] % block:
        cursor.fail(
            f"tensor {shown(name)}: {kind} needs rows of a multiple of {block} values, not {shape[-1]}"
        )
    return _Entry(name, shape, kind, values // block * width, offset)


def _entries(cursor: Cursor, count: int, metadata: dict[str, Any]) -> list[_Entry]:
    entries = [_entry(cursor, index, metadata) for index in range(count)]
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            cursor.fail(f"tensor {shown(entry.name)} stands twice")
        seen.add(entry.name)
    return entries


def _alignment(cursor: Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        cursor.fail(f"'general.alignment' is {shown(value)}; it must be a power of two up to {MAX_ALIGNMENT}")
    return value


def _check_layout(cursor: Cursor, entries: Iterable[_Entry], data_start: int, alignment: int) -> None:
    """Every tensor lies aligned inside the file and apart from the others."""
    previous: _Entry | None = None
    cut: _Entry | None = None
    needed = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset % alignment:
            cursor.fail(
                f"tensor {shown(entry.name)} has the offset {entry.offset}, not a multiple of {alignment}"
            )
        if previous is not None and entry.offset < previous.end:
            cursor.fail(f"the data of tensors {shown(previous.name)} and {shown(entry.name)} overlap")
        previous = entry
        needed = data_start + entry.end
        if cut is None and needed > cursor.size:
            cut = entry
    if cut is not None:
        piece = joining(cursor.path.name)
        advice = f"; {piece}" if piece else ". Download it again"
        cursor.fail(
            f"the file is incomplete: {needed} bytes are needed and {cursor.size} are present; "
            f"it ends before the end of tensor {shown(cut.name)}{advice}"
        )


def read_gguf(path: str | Path) -> GGUFFile:
    """Parse the header of a GGUF file and map its tensors; reads no tensor data.

    Raises EngineError(model_invalid) with one sentence that names the file and the field.
    """
    path = Path(path)
    cursor, version, tensor_count, key_count = open_header(path)
    metadata = _metadata(cursor, key_count)
    entries = _entries(cursor, tensor_count, metadata)
    alignment = _alignment(cursor, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    _check_layout(cursor, entries, data_start, alignment)
    data = np.frombuffer(cursor.buffer, np.uint8)
    tensors = {
        entry.name: StoredTensor(
            entry.name, entry.shape, entry.type, data[data_start + entry.offset : data_start + entry.end]
        )
        for entry in entries
    }
    return GGUFFile(path, version, metadata, tensors)


def first_part(names: list[str]) -> str | None:
    """The first part, where these names are all the parts of one model."""
    matches = [match for match in map(_PART.fullmatch, sorted(names)) if match]
    wanted = [(number, len(names)) for number in range(1, len(names) + 1)]
    alike = len({match[1] for match in matches}) == 1
    return min(names) if alike and [(int(m[2]), int(m[3])) for m in matches] == wanted else None


def _part_of(file: GGUFFile) -> tuple[int, int]:
    """Which part a file is (from 0), and of how many; one that holds all their tensors is the whole.

    Programs that make one file of several leave such keys in it.
    """
    fields = file.fields()
    count = fields.integer("split.count", 0, 1 << 16, default=1)
    if count > _MAX_PARTS:
        fields.fail("split.count", f"is {count}; at most {_MAX_PARTS} parts are supported")
    whole = fields.integer("split.tensors.count", 0, 1 << 31, default=-1) == len(file.tensors)
    return (0, 1) if count < 2 or whole else (fields.integer("split.no", 0, count - 1, default=0), count)


def read_gguf_model(path: str | Path) -> GGUFFile:
    """The header of a model in one file, or in parts, of which any may be named.

    Raises EngineError(model_invalid) with one sentence that names the file, and the part that is missing.
    """
    file = read_gguf(path)
    number, count = _part_of(file)
    if count < 2:
        return file._replace(metadata=_unsplit(file))
    match = _PART.fullmatch(file.path.name)
    if match is None or (int(match[2]), int(match[3])) != (number + 1, count):
        raise invalid(
            file.path,
            f"this is part {number + 1} of {count}; to find the others its name must end in "
            f"-{number + 1:05}-of-{count:05}.gguf, as gguf-split names them",
        )
    paths = [file.path.with_name(f"{match[1]}-{i:05}-of-{count:05}{match[4]}") for i in range(1, count + 1)]
    for index, part in enumerate(paths):
        if not os.path.exists(part):
            raise invalid(
                file.path,
                f"this is part {number + 1} of {count}, and part {index + 1} ({shown(part.name)}) is not "
                "beside it; download all parts into one folder and name the first",
            )
    parts = [file if i == number else read_gguf(part) for i, part in enumerate(paths)]
    tensors: dict[str, StoredTensor] = {}
    for index, part_file in enumerate(parts):
        if _part_of(part_file) != (index, count):
            raise invalid(part_file.path, f"this is not part {index + 1} of {count} (split.no, split.count)")
        for name, tensor in part_file.tensors.items():
            if name in tensors:
                raise invalid(part_file.path, f"tensor {shown(name)} is in another part as well")
            tensors[name] = tensor
    declared = parts[0].fields("split.").integer("tensors.count", 0, 1 << 31, default=len(tensors))
    if declared != len(tensors):
        raise invalid(
            parts[0].path, f"split.tensors.count is {declared}, but the parts hold {len(tensors)} tensors"
        )
    return parts[0]._replace(metadata=_unsplit(parts[0]), tensors=tensors)


def _unsplit(file: GGUFFile) -> dict[str, Any]:
    """The metadata without what is said of parts."""
    return {key: value for key, value in file.metadata.items() if not key.startswith("split.")}

"""Quantizing a model and saving it: a GGUF file as a GGUF file, a folder as a folder."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kernels.formats import FORMATS
from kernels.quantize import row_pieces
from kernels.stored import release
from kernels.weights import Packed

from ..loading.checkpoint import Checkpoint, open_checkpoint
from ..loading.fields import refusing, shown
from ..loading.files import map_file
from ..loading.folder import Folder
from ..loading.gguf import GGUFFile
from ..loading.gguf_cursor import Cursor
from ..loading.grouped import JoinedTensor
from ..loading.safetensors import INDEX, SINGLE, read_folder
from ..loading.saved import CODES, METHOD, MINIMA, SCALES, VERSION, SavedTensor
from ..loading.stored import StoredTensor
from ..loading.tensors import planned_format
from ..types import EngineError
from .target import becoming, check_target, sync
from .writer import TensorWriter, gguf_header, gguf_room, safetensors_header

SavedAs = Literal["int8", "int4", "nf4"]

Watch = Callable[[int, int], None]
"""Told bytes that are done and bytes there are, of what is read. What it raises ends the saving."""

_BLOCKS = {"q8": "Q8_0", "q4": "Q4_1"}
_FILE_TYPES = {"int8": 7, "int4": 3}  # of general.file_type: mostly Q8_0, mostly Q4_1
_REPLACED = ("general.file_type", "general.quantization_version")
_PIECES = 32  # of `row_pieces`: what is written at a time
_NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx")


class Saved(NamedTuple):
    """What was written. kept: matrices that stayed as they were, as they can't be held in fewer bits."""

    path: Path
    nbytes: int
    kept: tuple[str, ...]


def quantize_model(
    source: Path, quantization: SavedAs, target: Path, *, replace: bool = False, watch: Watch | None = None
) -> Saved:
    """Write the model at `source` to `target` with its weights as int8, int4 or nf4.

    A GGUF file, also one in parts, becomes a GGUF file with the same metadata, Q8_0 or Q4_1; a folder becomes
    a folder. Holds one tensor at a time. Whatever ends it, nothing is left of what was begun.

    EngineError: model_invalid; invalid_request: the target is there already, or nothing would be smaller.
    OSError: the disk is full, or can't be written.
    """
    if quantization not in get_args(SavedAs):
        raise ValueError(f"quantization must be {' or '.join(get_args(SavedAs))}, not {quantization!r}")
    checkpoint = open_checkpoint(source, quantization)
    tensors = checkpoint.tensors
    if not tensors.changed():
        raise EngineError(
            "invalid_request",
            f"{checkpoint.name} is stored as {tensors.label()}, which has no more bits than {quantization}",
        )
    _check_unquantized(checkpoint)
    turned = next((spec for spec, _ in tensors.bound.values() if spec.inputs_first), None)
    if turned is not None:
        raise EngineError(
            "invalid_request",
            f"{checkpoint.name}: tensor {turned.stored_name} holds columns where others hold rows and "
            "can't be saved with fewer bits; use a GGUF file of the model",
        )
    folder = isinstance(checkpoint.source, Folder)
    if quantization not in (*_FILE_TYPES, *(["nf4"] if folder else [])):
        raise EngineError("invalid_request", "GGUF files have no type for nf4; int4 is as small")
    check_target(target, folder=folder, replace=replace, source=checkpoint.path)
    _check_room(target, tensors.nbytes())
    counting = _Counting(sum(tensor.nbytes for tensor in _stored(checkpoint).values()), watch)
    with becoming(target, folder=folder) as path:
        if isinstance(checkpoint.source, Folder):
            kept = _write_folder(checkpoint, checkpoint.source, quantization, path, counting)
        else:
            kept = _write_gguf(checkpoint, checkpoint.source, quantization, path, counting)
        open_checkpoint(path)  # what could not be loaded is no model
        nbytes = sum(file.stat().st_size for file in (path.iterdir() if folder else (path,)))
    return Saved(target, nbytes, kept)


def _check_unquantized(checkpoint: Checkpoint) -> None:
    """EngineError(invalid_request): matrices that are stored in several tensors would get another format."""
    tensors = checkpoint.tensors
    for spec, tensor in tensors.bound.values():
        format = planned_format(spec, tensor, tensors.quantization)
        stays = isinstance(tensor, SavedTensor) and format == tensor.format
        if isinstance(tensor, JoinedTensor) and not stays:
            raise EngineError(
                "invalid_request",
                f"{checkpoint.name} has been quantized already: tensor {shown(tensor.name)} is stored as "
                f"{tensor.label}; quantize the model that it was made of",
            )


class _Counting:
    """Adds up the bytes that are read."""

    def __init__(self, total: int, watch: Watch | None) -> None:
        self._done, self._total, self._watch = 0, total, watch

    def __call__(self, nbytes: int) -> None:
        self._done += nbytes
        if self._watch is not None:
            self._watch(min(self._done, self._total), self._total)


def _check_room(target: Path, nbytes: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if nbytes > free:
        raise OSError(
            errno.ENOSPC,
            f"some {nbytes / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free on its disk",
        )


def _stored(checkpoint: Checkpoint) -> dict[str, StoredTensor]:
    """Every tensor of the files, by its name there."""
    if isinstance(checkpoint.source, Folder):
        return read_folder(checkpoint.source) or {}
    return checkpoint.source.tensors


def _formats(checkpoint: Checkpoint) -> dict[str, str]:
    """The formats of the stored tensors that get another one, by their names in the files."""
    found = {}
    for spec, tensor in checkpoint.tensors.bound.values():
        format = planned_format(spec, tensor, checkpoint.tensors.quantization)
        if spec.is_matrix and format != tensor.format:
            found[tensor.name] = format
    return found


def _packed(path: Path, tensor: StoredTensor, format: str | None, counting: _Counting) -> Packed | None:
    """The tensor in a format that files can hold it in; None: it stays as it is.

    path: of the model. EngineError(model_invalid), naming the tensor: its values can't be held.
    """
    if format is None or len(tensor.shape) < 2 or tensor.shape[-1] % FORMATS[format].group:
        return None
    rows = math.prod(tensor.shape[:-1])
    matrix = tensor._replace(shape=(rows, tensor.shape[-1]))
    with refusing(path):
        packed = matrix.to_weight(format, None, counting)
    assert isinstance(packed, Packed), "another format was asked for"
    return packed if packed.kept is None else None


def _raw(tensor: StoredTensor, counting: _Counting | None) -> Iterator[NDArray[np.uint8]]:
    step = 1 << 24
    for start in range(0, tensor.data.size, step):
        piece = tensor.data[start : start + step]
        if counting is not None:
            counting(piece.nbytes)
        yield piece
        release(piece)


def _blocks(packed: Packed) -> Iterator[NDArray[np.uint8]]:
    """The blocks of ggml: scales, minima if there are any, codes."""
    for rows in row_pieces(*packed.shape, _PIECES):
        part = packed.part(rows.start, rows.stop)
        numbers = [part.scales] if part.minima is None else [part.scales, part.minima]
        halves = [
            np.ascontiguousarray(number, "<f2").view(np.uint8).reshape(*number.shape, 2) for number in numbers
        ]
        yield np.concatenate([*halves, part.codes.view(np.uint8)], axis=-1).reshape(-1)


def _write_gguf(
    checkpoint: Checkpoint, source: GGUFFile, quantization: SavedAs, path: Path, counting: _Counting
) -> tuple[str, ...]:
    metadata, keys = _metadata(source, _FILE_TYPES[quantization])
    formats, kept = _formats(checkpoint), []
    alignment = source.metadata.get("general.alignment", 32)
    with open(path, "wb") as file:
        room = gguf_room(metadata, {name: tensor.shape for name, tensor in source.tensors.items()})
        writer = TensorWriter(file, room, alignment)
        for name, tensor in source.tensors.items():
            packed = _packed(source.path, tensor, formats.get(name), counting)
            if packed is not None:
                writer.add(name, _BLOCKS[packed.format], tensor.shape, _blocks(packed))
                continue
            if name in formats:
                kept.append(name)
            writer.add(name, tensor.type, tensor.shape, _raw(tensor, None if name in formats else counting))
        writer.finish(gguf_header(metadata, keys, writer.written))
    sync(path)
    return tuple(kept)


def _metadata(source: GGUFFile, file_type: int) -> tuple[bytes, int]:
    """The metadata of a file as they stand there, but for what says how it is stored; and how many keys."""
    buffer = map_file(source.path)
    assert buffer is not None, "it was read before"
    cursor = Cursor(source.path, buffer)
    cursor.position = 16
    kept = []
    for index in range(cursor.number("<Q", "the number of metadata keys")):
        start = cursor.position
        name = cursor.name(f"metadata key {index}")
        cursor.value(cursor.number("<I", "its type"), name)
        if name not in _REPLACED and not name.startswith("split."):
            kept.append(buffer[start : cursor.position])
    for name, number in zip(_REPLACED, (file_type, 2), strict=True):
        kept.append(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<II", 4, number))
    return b"".join(kept), len(kept)


def _write_folder(
    checkpoint: Checkpoint, source: Folder, quantization: SavedAs, path: Path, counting: _Counting
) -> tuple[str, ...]:
    config = source.json("config.json")
    assert config is not None, "it was read before"
    _copy_files(source, path)
    formats, kept = _formats(checkpoint), []
    stored = _stored(checkpoint)
    weights = path / SINGLE
    with open(weights, "wb") as file:
        # Three tensors for one, each with some more letters in its name and digits in its numbers.
        room = sum(3 * (len(json.dumps(name)) + 160) for name in stored) + 100
        writer = TensorWriter(file, room, 1)  # gaps are not allowed
        for name, tensor in stored.items():
            packed = _packed(source.path, tensor, formats.get(name), counting)
            if packed is not None:
                _add_packed(writer, name, packed)
                continue
            if name in formats:
                kept.append(name)
            writer.add(name, tensor.type, tensor.shape, _raw(tensor, None if name in formats else counting))
        writer.finish(safetensors_header(writer.written, writer.room))
    sync(weights)
    described = {"quant_method": METHOD, "version": VERSION, "weights": quantization}
    text = json.dumps({**config, "quantization_config": described}, indent=2, ensure_ascii=False)
    (path / "config.json").write_text(text + "\n", encoding="utf-8")
    return tuple(kept)


def _add_packed(writer: TensorWriter, name: str, packed: Packed) -> None:
    codes = "I8" if packed.format == "q8" else "U8"
    shape = (packed.shape[0], packed.codes.shape[1] * packed.codes.shape[2])
    writer.add(name + CODES, codes, shape, (np.ascontiguousarray(packed.codes).data,))
    for suffix, numbers in ((SCALES, packed.scales), (MINIMA, packed.minima)):
        if numbers is not None:
            type, dtype = ("F16", "<f2") if numbers.dtype == np.float16 else ("F32", "<f4")
            stored = np.ascontiguousarray(numbers, dtype)
            writer.add(name + suffix, type, stored.shape, (stored.data,))


def _copy_files(source: Folder, path: Path) -> None:
    """Everything beside the weights and config.json: tokenizer, template, settings, licence."""
    for file in sorted(source.path.iterdir()):
        if file.name.startswith(".") or not os.path.isfile(file) or file.name in ("config.json", INDEX):
            continue
        if file.suffix.lower() not in _NOT_COPIED:
            shutil.copyfile(source.file(file.name), path / file.name)

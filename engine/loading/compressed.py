"""compressed-tensors: weights of 4 and 8 bits with scales of groups or of whole rows, packed or as int8.

Source: the formats `pack-quantized`, `int-quantized` and `naive-quantized` of the library compressed-tensors
(vLLM project), as its documentation and files describe them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from kernels.formats import GROUP

from .fields import Fields, invalid, shown
from .grouped import GroupedTensor, Rows, join
from .packed_words import padded, values_of
from .stored import StoredTensor

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized")


class Scheme(NamedTuple):
    """How weights are stored. group: columns that share a scale, -1 for a whole row, 0 for the matrix."""

    bits: int
    group: int
    symmetric: bool


def read_compressed(config: Fields) -> Scheme:
    """From quantization_config. EngineError(model_invalid) for what can't be read."""
    format = config.string("format", default="")
    if format not in _FORMATS:
        config.fail(
            "format", f"{shown(format)} is not supported ({', '.join(_FORMATS)} are); use a GGUF file"
        )
    groups = config.mapping("config_groups")
    names = [] if groups is None else _names(groups)
    schemes = {_scheme(groups, name) for name in names} if groups is not None else set()
    if len(schemes) != 1:
        config.fail(
            "config_groups", "with other than one scheme for weights are not supported; use a GGUF file"
        )
    if config.get("kv_cache_scheme"):
        config.fail("kv_cache_scheme", "is not supported; use a GGUF file")
    sparse = config.mapping("sparsity_config")
    if sparse is not None and sparse.string("format", default="dense") != "dense":
        sparse.fail("format", "other than dense is not supported; use a GGUF file")
    return schemes.pop()


def _names(groups: Fields) -> list[str]:
    """Of the groups that say how weights are stored."""
    inside = {key.removeprefix(groups.prefix) for key in groups.values if key.startswith(groups.prefix)}
    return sorted(name for name in inside if "." not in name and groups.mapping(name) is not None)


def _scheme(groups: Fields, name: str) -> Scheme:
    group = groups.mapping(name)
    assert group is not None, name
    weights = group.mapping("weights")
    if weights is None:
        group.fail("weights", "must be an object")
    inputs = group.mapping("input_activations")
    if inputs is not None and inputs.values and not inputs.boolean("dynamic", default=False):
        inputs.fail("dynamic", "false (activations with scales of their own) is not supported")
    bits = weights.integer("num_bits", 1, 32)
    kind = weights.string("type", default="int")
    if kind != "int" or bits not in (4, 8):
        weights.fail("num_bits", f"{bits} of the type {shown(kind)} is not supported (int of 4 and 8 are)")
    if weights.get("actorder") not in (None, False, "weight", "static"):
        weights.fail("actorder", "that moves columns is not supported; use a GGUF file")
    strategy = weights.string("strategy", default="tensor")
    symmetric = weights.boolean("symmetric", default=True)
    if bits == 8 and not symmetric:
        weights.fail("symmetric", "false is not supported for 8 bits; use a GGUF file")
    if strategy == "group":
        size = weights.integer("group_size", 1, 1 << 20)
        if size % GROUP:
            weights.fail("group_size", f"{size} is not supported (multiples of {GROUP} are)")
        return Scheme(bits, size, symmetric)
    if strategy not in ("channel", "tensor"):
        weights.fail("strategy", f"{shown(strategy)} is not supported (group, channel and tensor are)")
    return Scheme(bits, -1 if strategy == "channel" else 0, symmetric)


Tensors = Mapping[str, StoredTensor]
_PARTS = (
    ".weight_scale",
    ".weight_packed",
    ".weight",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
)


def join_compressed(path: Path, scheme: Scheme, tensors: Tensors) -> dict[str, Any]:
    """The tensors, with each `NAME.weight_scale` and what belongs to it as the matrix `NAME.weight`."""
    return join(path, tensors, _PARTS, lambda base: _matrix(path, scheme, base, tensors))


def _matrix(path: Path, scheme: Scheme, base: str, tensors: Tensors) -> GroupedTensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    packed, plain = tensors.get(base + ".weight_packed"), tensors.get(base + ".weight")
    codes = packed or plain
    if codes is None or len(codes.shape) != 2 or codes.type != ("I8" if packed is None else "I32"):
        fail(".weight_scale has no quantized weights beside it")
    if base + ".weight_g_idx" in tensors:
        fail(".weight_g_idx: columns in the order of their activations are not supported; use a GGUF file")
    rows, columns = codes.shape
    if packed is not None:
        columns = _declared_columns(
            tensors.get(base + ".weight_shape"), rows, columns * 32 // scheme.bits, fail
        )
    if not rows or not columns:
        fail(f" has the shape {(rows, columns)}, which holds nothing")
    group = min(scheme.group, columns) if scheme.group > 0 else columns
    scales = tensors[base + ".weight_scale"]
    shapes = [(1,), (1, 1)] if scheme.group == 0 else [(rows, -(-columns // group))]
    if scales.shape not in (*shapes, (rows,) if scheme.group == -1 else shapes[0]):
        fail(f".weight_scale has the shape {scales.shape}, and {shapes[-1]} is needed")
    if scales.type not in ("F16", "BF16", "F32"):
        fail(f".weight_scale has the type {scales.type}, which is not supported")
    zeros = tensors.get(base + ".weight_zero_point")
    if not scheme.symmetric and zeros is None:
        fail(".weight_zero_point is missing")
    points = (
        None
        if scheme.symmetric or zeros is None
        else _points(zeros, scheme, (rows, -(-columns // group)), fail)
    )
    middle = 1 << (scheme.bits - 1)
    reach = 1 if points is None else 2

    def read(part: slice) -> Rows:
        if packed is None:
            numbers = codes.data.view(np.int8).reshape(codes.shape)[part].astype(np.int16)
        else:
            words = codes.data.view("<u4").reshape(codes.shape)[part]
            numbers = _unpacked(words, scheme.bits)[:, :columns]
        if points is not None:
            numbers = numbers - np.repeat(points[part], group, axis=1)[:, :columns]
        of_all = math.prod(scales.shape) == 1
        found = values_of(scales, ... if of_all else part).reshape(1 if of_all else len(numbers), -1)
        return Rows(numbers, np.broadcast_to(found, (len(numbers), found.shape[1])))

    type = f"compressed-tensors {scheme.bits} bits"
    sources = tuple(tensors[base + part] for part in _PARTS if base + part in tensors)
    bounds = -middle * reach, (middle if points is None else 2 * middle) - 1
    wide = 32 if scales.type == "F32" else 16
    size = padded(group) if group < columns else -(-columns // 64) * 64  # a whole row takes any filling
    return GroupedTensor(base + ".weight", (rows, columns), type, sources, *bounds, size, read, wide)


def _unpacked(words: NDArray[np.uint32], bits: int) -> NDArray[np.int16]:
    """Integers along the columns, lowest bits first; stored with half of their range added."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    fields = words[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return fields.reshape(*words.shape[:-1], -1).astype(np.int16) - np.int16(1 << (bits - 1))


def _declared_columns(
    shape: StoredTensor | None, rows: int, most: int, fail: Callable[[str], NoReturn]
) -> int:
    if shape is None or shape.type not in ("I64", "I32") or shape.shape != (2,):
        fail(".weight_shape is missing or no shape")
    declared = [int(value) for value in shape.data.view("<i8" if shape.type == "I64" else "<i4")]
    if declared[0] != rows or not most - 32 < declared[1] <= most:
        fail(f".weight_shape is {tuple(declared)}, which its packed weights do not have")
    return declared[1]


def _points(
    tensor: StoredTensor, scheme: Scheme, shape: tuple[int, int], fail: Callable[[str], NoReturn]
) -> NDArray[np.int16]:
    """Zero points [rows, groups]: as int8, or packed along the rows."""
    rows, groups = shape
    if tensor.type == "I8" and tensor.shape == shape:
        return tensor.data.view(np.int8).reshape(shape).astype(np.int16)
    each = 32 // scheme.bits
    if tensor.type != "I32" or tensor.shape != (-(-rows // each), groups):
        fail(f".weight_zero_point has the shape {tensor.shape}, which its weights do not have")
    words = tensor.data.view("<u4").reshape(tensor.shape)
    return _unpacked(words.T, scheme.bits).T[:rows]

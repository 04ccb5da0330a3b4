"""GPTQ and AWQ: integers of a few bits in words of 32, inputs by outputs, with zero points.

Sources: Frantar et al. 2022 (arXiv 2210.17323) and the layout of AutoGPTQ, which GPTQModel and transformers
read as well; Lin et al. 2023 (arXiv 2306.00978) and the layout `gemm` of AutoAWQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import GROUP
from kernels.weights import Plain, dequantize

from .fields import Fields, invalid, shown
from .grouped import GroupedTensor, JoinedTensor, Rows, join
from .stored import StoredTensor

Tensors = Mapping[str, StoredTensor]

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which of the eight fields of a word, from its lowest bits, holds each output in turn."""


class Words(NamedTuple):
    """How a method stores a matrix.

    bits: of an integer. group: inputs that share a scale, -1 for all. order: fields of a word, in
    the order of numbers. along_inputs: a word holds integers of several inputs, not outputs. more: added to
    stored zero points. symmetric: all zero points are in the middle.
    """

    method: str
    bits: int
    group: int
    order: tuple[int, ...]
    along_inputs: bool
    more: int
    symmetric: bool


def read_gptq(config: Fields) -> Words:
    """From quantization_config. EngineError(model_invalid) for what can't be read."""
    bits = config.integer("bits", 1, 32)
    if bits not in (4, 8):
        config.fail("bits", f"{bits} is not supported for GPTQ (4 and 8 are); use a GGUF file")
    if config.get("dynamic"):
        config.fail("dynamic", "settings of single layers are not supported for GPTQ; use a GGUF file")
    kind = config.string("checkpoint_format", default="gptq")
    if kind not in ("gptq", "gptq_v2"):
        config.fail("checkpoint_format", f"{shown(kind)} is not supported (gptq and gptq_v2 are)")
    symmetric = config.boolean("sym", default=False)
    if bits == 8 and not symmetric:
        config.fail("sym", "false is not supported for GPTQ of 8 bits; use a GGUF file")
    more = 1 if kind == "gptq" else 0
    return Words("GPTQ", bits, _group(config), tuple(range(32 // bits)), True, more, symmetric)


def read_awq(config: Fields) -> Words:
    """From quantization_config. EngineError(model_invalid) for what can't be read."""
    bits = config.integer("bits", 1, 32)
    if bits != 4:
        config.fail("bits", f"{bits} is not supported for AWQ (4 is); use a GGUF file")
    version = config.string("version", default="gemm")
    if version.lower() != "gemm":
        config.fail("version", f"{shown(version)} is not supported (gemm is); use a GGUF file")
    if not config.boolean("zero_point", default=True):
        config.fail("zero_point", "false is not supported for AWQ; use a GGUF file")
    return Words("AWQ", bits, _group(config), _AWQ_ORDER, False, 0, False)


def _group(config: Fields) -> int:
    group: int = config.integer("group_size", -1, 1 << 20, default=128)
    if group == 0 or (group > 0 and group % GROUP):
        config.fail("group_size", f"{group} is not supported (multiples of {GROUP} and -1 are)")
    return group


_PARTS = (".qweight", ".qzeros", ".scales", ".g_idx")


def join_words(path: Path, words: Words, tensors: Tensors) -> dict[str, StoredTensor | JoinedTensor]:
    """The tensors, with each `NAME.qweight` and what belongs to it as the matrix `NAME.weight`."""
    return join(path, tensors, _PARTS, lambda base: _matrix(path, words, base, tensors))


def _matrix(path: Path, words: Words, base: str, tensors: Tensors) -> GroupedTensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    def tensor(suffix: str, types: tuple[str, ...]) -> StoredTensor:
        found = tensors.get(base + suffix)
        if found is None:
            fail(f"{suffix} is missing")
        if found.type not in types or len(found.shape) != 2:
            fail(f"{suffix} of {found.type} {found.shape} is nothing that {words.method} has")
        return found

    codes = tensor(".qweight", ("I32",))
    zeros = tensor(".qzeros", ("I32",))
    scales = tensor(".scales", ("F16", "BF16", "F32"))
    each = 32 // words.bits
    inputs, outputs = codes.shape
    inputs, outputs = (inputs * each, outputs) if words.along_inputs else (inputs, outputs * each)
    if not inputs or not outputs:
        fail(f".qweight has the shape {codes.shape}, which holds nothing")
    group = min(words.group, inputs) if words.group > 0 else inputs
    groups = -(-inputs // group)
    for suffix, found, wanted in (
        (".scales", scales, (groups, outputs)),
        (".qzeros", zeros, (groups, outputs // each)),
    ):
        if found.shape != wanted:
            fail(f"{suffix} has the shape {found.shape}; {wanted} is what {words.method} has for its weights")
    if outputs % each or (group % GROUP and groups > 1):
        fail(f" has {outputs} outputs and groups of {group}, which can't be read")
    _check_order(path, base, tensors.get(base + ".g_idx"), inputs, group)
    middle = 1 << (words.bits - 1)
    low, high = (-middle, middle - 1) if words.symmetric else (-2 * middle, 2 * middle - 1)

    def read(rows: slice) -> Rows:
        if words.along_inputs:
            stored = codes.data.view("<u4").reshape(codes.shape)[:, rows]
            numbers = _fields(stored, words, 0).T
        else:
            numbers = _columns(codes, rows, words).T
        points = _columns(zeros, rows, words).T + words.more
        spread = np.repeat(points, group, axis=1)[:, :inputs]
        return Rows(numbers - spread, values_of(scales, (slice(None), rows)).T)

    sources = tuple(tensors[base + suffix] for suffix in _PARTS if base + suffix in tensors)
    type = f"{words.method} {words.bits} bits"
    wide = 32 if scales.type == "F32" else 16
    name, shape = base + ".weight", (outputs, inputs)
    return GroupedTensor(name, shape, type, sources, low, high, padded(group), read, wide)


def padded(group: int) -> int:
    """A group as large as its filling makes it."""
    return -(-group // GROUP) * GROUP


def _check_order(path: Path, base: str, order: StoredTensor | None, inputs: int, group: int) -> None:
    """Columns have to lie in the order of their groups."""
    if order is None:
        return
    if order.type not in ("I32", "I64") or order.shape != (inputs,):
        raise invalid(
            path, f"tensor {shown(base)}.g_idx has the shape {order.shape}; {(inputs,)} is declared"
        )
    numbers = order.data.view("<i4" if order.type == "I32" else "<i8")
    if not np.array_equal(numbers, np.arange(inputs) // group):
        raise invalid(
            path,
            f"tensor {shown(base)}.g_idx: columns in the order of their activations (desc_act) are not "
            "supported; use a file without, or GGUF",
        )


def _fields(words: NDArray[np.uint32], how: Words, axis: int) -> NDArray[np.int16]:
    """The integers in words, along an axis."""
    mask = np.uint32((1 << how.bits) - 1)
    fields = [((words >> np.uint32(how.bits * field)) & mask).astype(np.int16) for field in how.order]
    stacked = np.stack(fields, axis=axis + 1)
    shape = list(words.shape)
    shape[axis] *= len(how.order)
    return stacked.reshape(shape)


def _columns(tensor: StoredTensor, columns: slice, how: Words) -> NDArray[np.int16]:
    """Columns of a matrix whose words hold several of them."""
    each = len(how.order)
    first, last = columns.start // each, -(-columns.stop // each)
    words = tensor.data.view("<u4").reshape(tensor.shape)[:, first:last]
    numbers = _fields(words, how, 1)
    return numbers[:, columns.start - first * each : columns.stop - first * each]


def values_of(tensor: StoredTensor, part: Any = ...) -> Float32:
    """A tensor of float16, bfloat16 or float32 values, or a part of it, as float32."""
    format, dtype = {"F16": ("f16", "<f2"), "BF16": ("bf16", "<u2"), "F32": ("f32", "<f4")}[tensor.type]
    values = tensor.data.view(dtype).reshape(tensor.shape)[part]
    return dequantize(Plain(values.reshape(-1), format)).reshape(values.shape)

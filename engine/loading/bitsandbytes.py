"""bitsandbytes: rows of int8 with a scale each, and the 4 bits of QLoRA by blocks of 64.

Sources: Dettmers et al. 2022 (arXiv 2208.07339) and 2023 (arXiv 2305.14314); the tensors that transformers
saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import FORMATS, GROUP
from kernels.nf4 import BLOCK, LEVELS
from kernels.weights import Packed, Weight

from ..models.tensor_specs import TensorSpec
from .fields import Fields, invalid, shown
from .files import parse_json_object
from .grouped import GroupedTensor, JoinedTensor, Rows, join
from .packed_words import values_of
from .stored import StoredTensor


def join_int8(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensors, with each `NAME.SCB` and its weights as a matrix: value = int8 * SCB / 127."""
    parts = (".SCB", ".weight", ".weight_format")
    return join(path, tensors, parts, lambda base: _int8(path, base, tensors))


def _int8(path: Path, base: str, tensors: Mapping[str, StoredTensor]) -> GroupedTensor:
    codes, scales = tensors.get(base + ".weight"), tensors[base + ".SCB"]
    if codes is None or codes.type != "I8" or len(codes.shape) != 2:
        raise invalid(path, f"tensor {shown(base)}.weight is not the int8 matrix that its SCB belongs to")
    if scales.type != "F32" or scales.shape != codes.shape[:1]:
        raise invalid(
            path, f"tensor {shown(base)}.SCB has the shape {scales.shape}; {codes.shape[:1]} is needed"
        )
    layout = tensors.get(base + ".weight_format")
    if layout is not None and layout.data.any():
        raise invalid(path, f"tensor {shown(base)}.weight_format: only rows in order are supported")
    rows, columns = codes.shape

    def read(part: slice) -> Rows:
        numbers = codes.data.view(np.int8).reshape(codes.shape)[part].astype(np.int16)
        return Rows(numbers, values_of(scales, part)[:, None] / np.float32(127))

    sources = codes, scales
    name, group = base + ".weight", -(-columns // 64) * 64
    return GroupedTensor(name, (rows, columns), "bitsandbytes int8", sources, -128, 127, group, read, 32)


@dataclass(frozen=True, slots=True)
class Nf4Tensor(JoinedTensor):
    """Codes of nf4 [rows, columns / 2], the first of two in the high bits; blocks' magnitudes."""

    codes: NDArray[np.uint8]
    magnitudes: Float32

    @property
    def format(self) -> str:
        """The format that holds it as it is."""
        return "nf4"

    def part(self, spec: TensorSpec, turned: bool = False) -> Nf4Tensor:
        """As `StoredTensor.part`."""
        if self.shape == spec.shape:
            return self
        assert not turned, "codes are packed"
        rows = slice(spec.first_row, spec.first_row + spec.shape[0] * spec.row_step, spec.row_step)
        return replace(self, shape=spec.shape, codes=self.codes[rows], magnitudes=self.magnitudes[rows])

    def _levels(self, rows: slice) -> NDArray[np.uint8]:
        pairs = self.codes[rows]
        return np.stack([pairs >> 4, pairs & 15], axis=-1).reshape(len(pairs), -1)

    def _values(self, rows: slice) -> Float32:
        values: Float32 = LEVELS[self._levels(rows)] * np.repeat(self.magnitudes[rows], BLOCK, axis=1)
        return values

    def _as_it_is(self, after: Callable[[int], None] | None) -> Weight:
        form = FORMATS["nf4"]
        rows, columns = self._matrix
        codes = np.empty((rows, columns // GROUP, form.code_bytes), np.uint8)
        for here in self._pieces():
            codes[here] = form.pack(self._levels(here).reshape(-1, columns // GROUP, GROUP))
            self._tell(here, after)
        return Packed("nf4", (rows, columns), codes, self.magnitudes / np.float32(127))


def join_4bit(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensors, with each `NAME.weight` of nf4 and what belongs to it as a matrix."""
    mark = ".quant_state.bitsandbytes__"
    states = {name.partition(mark)[0]: name for name in tensors if mark in name}
    joined: dict[str, Any] = {}
    for name, tensor in tensors.items():
        base = next((name[: at + 7] for at in (name.rfind(".weight"),) if at >= 0), "")
        if base not in states:
            joined[name] = tensor
    for base, state in states.items():
        joined[base] = _nf4(path, base, tensors, state.partition(mark)[2], tensors[state])
    return joined


def _nf4(
    path: Path, base: str, tensors: Mapping[str, StoredTensor], kind: str, state: StoredTensor
) -> Nf4Tensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    if kind != "nf4":
        fail(f" is of the 4 bits {shown(kind)}, which are not supported (nf4 is); use a GGUF file")
    declared = parse_json_object(bytes(state.data[:_LARGEST_STATE]), path, f"{base}.quant_state")
    shape, blocksize = declared.get("shape"), declared.get("blocksize")
    codes = tensors.get(base)
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape):
        fail(".quant_state has no shape of a matrix")
    rows, columns = shape
    if blocksize != BLOCK or columns % BLOCK:
        fail(
            f" has blocks of {shown(blocksize)} in rows of {columns}; rows of whole blocks of 64 can be read"
        )
    if codes is None or codes.type != "U8" or codes.data.size * 2 != rows * columns:
        fail(" has other bytes than its shape needs")
    table = tensors.get(base + ".quant_map")
    if table is None or table.type != "F32" or not np.array_equal(values_of(table), LEVELS):
        fail(".quant_map is not the table of nf4")
    magnitudes = _magnitudes(base, tensors, declared, rows * columns // BLOCK, fail)
    if not np.isfinite(magnitudes).all():
        fail(".absmax holds a value that is not finite")
    return Nf4Tensor(
        name=base,
        shape=(rows, columns),
        type="bitsandbytes nf4",
        sources=(codes,),
        codes=codes.data.reshape(rows, columns // 2),
        magnitudes=magnitudes.reshape(rows, -1),
    )


def _magnitudes(
    base: str,
    tensors: Mapping[str, StoredTensor],
    declared: Mapping[str, Any],
    count: int,
    fail: Callable[[str], NoReturn],
) -> Float32:
    """Of each block: as float32, or (double quantization) as bytes: numbers of a table's values, which are
    multiplied with the largest magnitude of a block of blocks; to the product an offset is added.
    """
    stored = tensors.get(base + ".absmax")
    if stored is None or stored.data.size != count * {"F32": 4, "U8": 1}.get(stored.type, 0):
        fail(".absmax is missing or has another number of blocks")
    if stored.type == "F32":
        return values_of(stored).reshape(-1)
    size, offset = declared.get("nested_blocksize"), declared.get("nested_offset")
    table, outer = tensors.get(base + ".nested_quant_map"), tensors.get(base + ".nested_absmax")
    if type(size) is not int or not 1 <= size <= 1 << 20 or not isinstance(offset, (int, float)):
        fail(".quant_state does not say how its magnitudes are quantized")
    if table is None or table.type != "F32" or table.shape != (256,):
        fail(".nested_quant_map is missing or no table of 256 values")
    if outer is None or outer.type != "F32" or outer.shape != (-(-count // size),):
        fail(".nested_absmax is missing or has another number of blocks")
    wide = np.repeat(values_of(outer), size)[:count]
    if type(offset) is bool or not -_LARGEST_OFFSET <= offset <= _LARGEST_OFFSET:
        fail(f".quant_state has the nested_offset {shown(offset)}, which float32 does not hold")
    with np.errstate(all="ignore"):  # what is not finite is refused
        found: Float32 = values_of(table)[stored.data] * wide + np.float32(offset)
    return found


_LARGEST_OFFSET = float(np.finfo(np.float32).max)

_LARGEST_STATE = 1 << 16
"""Bytes of a description that are looked at."""


def check_bitsandbytes(config: Fields) -> bool:
    """Whether it is of 4 bits, else of 8. EngineError(model_invalid): neither."""
    if config.boolean("load_in_4bit", default=False):
        return True
    if not config.boolean("load_in_8bit", default=False):
        config.fail("load_in_4bit", "and load_in_8bit are both false")
    return False

"""A rank's part of a checkpoint's tensors: of the files it reads no more than that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from kernels.cuts import cut
from kernels.formats import BLOCKS, FORMATS
from kernels.weights import Weight

from ..loading.stored import StoredTensor
from ..loading.tensors import CheckpointTensors, planned_format
from .shares import Share

_BY_INPUTS = {"output", "down", "shared_down", "expert_down"}
_ADDED_ONCE = {f"{role}_bias" for role in _BY_INPUTS}
"""Biases of products that are summed over the ranks: the first rank has them."""
_TABLES = {"embedding", "head", "inputs_embedding"}


class Part(NamedTuple):
    """Rows and columns of a matrix, or values of a vector; None for all."""

    rows: range | None = None
    columns: range | None = None


@dataclass(frozen=True, slots=True)
class RankTensors:
    """Tensors of a rank's layers, which count from 0 here; see `models.placing.Tensors`."""

    tensors: CheckpointTensors
    share: Share

    def has(self, name: str) -> bool:
        """Whether this rank has such a tensor."""
        return self.tensors.has(self._stored(name)) and not self._of_the_first(name)

    def get(self, name: str) -> Weight | None:
        """The rank's part of it, in canonical form; None if it has none. EngineError as the whole's."""
        if not self.has(name):
            return None
        part = self.part(name)
        early = self._cut_early(self._stored(name), part)
        if early is not None:
            return early
        weight = self.tensors.get(self._stored(name))
        assert weight is not None, name
        if part == Part():
            return weight
        return cut(weight, range(weight.shape[0]) if part.rows is None else part.rows, part.columns)

    def part(self, name: str) -> Part:
        """What of a tensor this rank holds."""
        layer, _, rest = name.partition(".")
        if not rest:
            return Part(self.share.vocabulary) if name in _TABLES else Part()
        index, role = int(layer), rest.partition(".")[0]
        own = self.share.of_layers[index]
        head_dim = self.share.spec.sizes(index).head_dim
        outputs = {
            "q": _times(self.share.heads, head_dim),
            "k": _times(own.kv_heads, head_dim),
            "v": _times(own.kv_heads, head_dim),
            "sinks": self.share.heads,
            "gate": own.feed_forward,
            "up": own.feed_forward,
            "shared_gate": own.shared,
            "shared_up": own.shared,
            "expert_gate": own.experts,
            "expert_up": own.experts,
        }
        inputs = {
            "output": outputs["q"],
            "down": own.feed_forward,
            "shared_down": own.shared,
            "expert_down": own.experts,
        }
        return Part(outputs.get(role.removesuffix("_bias")), inputs.get(role))

    def _stored(self, name: str) -> str:
        layer, _, rest = name.partition(".")
        return f"{int(layer) + self.share.layers.start}.{rest}" if rest else name

    def _of_the_first(self, name: str) -> bool:
        return self.share.tensor > 0 and name.partition(".")[2].partition(".")[0] in _ADDED_ONCE

    def _cut_early(self, name: str, part: Part) -> Weight | None:
        """The part, cut while it is still as the file has it: only that is read and quantized.

        None where the rest of the matrix has a say in what the part becomes, or is stored with it.
        """
        spec, tensor = self.tensors.bound[name]
        if not isinstance(tensor, StoredTensor) or not spec.is_matrix or part == Part():
            return None
        wholes = (range(size) for size in tensor.shape)
        rows, columns = (own or whole for own, whole in zip(part, wholes, strict=True))
        block, form = BLOCKS[tensor.type], FORMATS[planned_format(spec, tensor, self.tensors.quantization)]
        border = math.lcm(block.values, form.columns)
        if columns.start % border or (columns.stop % border and columns.stop != tensor.shape[1]):
            return None
        here, data = slice(rows.start, rows.stop), tensor.data
        if data.ndim == 3:  # its columns stood in rows: [rows, columns, bytes]
            data = data[here, columns.start : columns.stop]
        else:
            first, last = (-(-n // block.values) * block.nbytes for n in (columns.start, columns.stop))
            data = data.reshape(tensor.shape[0], -1)[here, first:last]
        own = tensor._replace(shape=(len(rows), len(columns)), data=data)
        return self.tensors._replace(bound={name: (spec, own)}).get(name)


def _times(numbers: range, factor: int) -> range:
    return range(numbers.start * factor, numbers.stop * factor)

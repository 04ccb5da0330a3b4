"""Operations that record: a decoder run once with them leaves the list of what is to be done each step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float32
from ..interface import Experts, Gate, Inputs, Rotation, Routing
from .library import Kind


class Matrix(NamedTuple):
    """A repacked matrix in the library. quantized, plain: wants int8 rows, float32 rows, or both.

    halves: made of two blocks of rows in one quantized format, each a multiple of 32 rows high.
    """

    address: int
    rows: int
    columns: int
    quantized: bool
    plain: bool
    halves: bool = False


class Symbol(NamedTuple):
    """An array of the step; the library knows where to find it."""

    name: str


INPUTS = Inputs(**{field.name: Symbol(field.name) for field in fields(Inputs)})


@dataclass(eq=False, slots=True)
class Storage:
    """A matrix that an operation fills. planes: 0 for float32 rows, else int8 planes of quantized rows."""

    columns: int
    samples: bool
    planes: int = 0


class Value(NamedTuple):
    """Columns offset to offset + columns of a storage."""

    storage: Storage
    offset: int
    columns: int

    @property
    def whole(self) -> bool:
        """Whether these are all columns."""
        return self.columns == self.storage.columns


class Mixture(NamedTuple):
    """What the operations of a mixture share. gate_up, down: addresses of each expert's matrices."""

    experts: Experts
    routing: Routing
    gate_up: NDArray[np.uint64]
    down: NDArray[np.uint64]

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """Those that take the rows as they come."""
        return self.experts.gate_up


@dataclass(slots=True)
class Node:
    """One operation.

    y: the second operand, what a gate multiplies if that is apart, or the residual that a linear adds.
    length: columns of a norm, of a head of a rope. turning: of a head of a rope, its columns that turn.
    number: eps of a norm, scale of an attention, factor or limit. cap: of the scores of an attention, 0 for
    none. vector: weight of a norm, sinks of an attention.
    """

    kind: Kind
    x: Value | None = None
    y: Value | None = None
    out: Value | None = None
    blocks: Storage | None = None
    matrix: Matrix | None = None
    vector: Float32 | None = None
    bias: Float32 | None = None
    rotation: Rotation | None = None
    mixture: Mixture | None = None
    planes: int = 1
    layer: int = 0
    window: int | None = None
    length: int = 0
    turning: int = 0
    gate: Gate = "silu"
    number: float = 0.0
    cap: float = 0.0

    @property
    def samples(self) -> bool:
        """Whether it works on the sample rows."""
        value = self.out or self.x
        storage = self.blocks if value is None else value.storage
        assert storage is not None
        return storage.samples

    def reads(self) -> list[Storage]:
        """Storages it takes values from."""
        values = [value.storage for value in (self.x, self.y) if value is not None]
        if self.kind != "quantize" and self.blocks is not None:
            values.append(self.blocks)
        return values

    def writes(self) -> Storage | None:
        """The storage it fills, if it fills one."""
        if self.kind == "quantize":
            return self.blocks
        return None if self.out is None else self.out.storage


class Sampled(NamedTuple):
    """What `sample` returns: the end of a program."""

    logits: Value


class RecordingOperations:
    """`Operations` that append to `nodes`; shapes are checked here, once."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def _new(self, node: Node, columns: int, *, samples: bool) -> Value:
        node.out = Value(Storage(columns, samples), 0, columns)
        self.nodes.append(node)
        return node.out

    def embedding(self, table: Matrix, tokens: Symbol) -> Value:
        """Rows of the table, dequantized."""
        assert tokens is INPUTS.tokens
        return self._new(Node("embedding", matrix=table), table.columns, samples=False)

    def rms_norm(self, x: Value, weight: Float32, eps: float) -> Value:
        """Norm of each run of len(weight) columns."""
        assert x.columns % len(weight) == 0, (x.columns, len(weight))
        node = Node("norm", x, vector=weight, length=len(weight), number=eps)
        return self._new(node, x.columns, samples=x.storage.samples)

    def linear(self, x: Value, weight: Matrix, bias: Float32 | None = None, *, planes: int = 1) -> Value:
        """Product with a repacked matrix."""
        assert x.columns == weight.columns, (x.columns, weight.columns)
        assert bias is None or len(bias) == weight.rows
        assert planes in (1, 2)
        node = Node("linear", x, matrix=weight, bias=bias, planes=planes)
        return self._new(node, weight.rows, samples=x.storage.samples)

    def split(self, x: Value, columns: tuple[int, ...]) -> tuple[Value, ...]:
        """Views: nothing is recorded."""
        assert sum(columns) == x.columns, (columns, x.columns)
        starts = [sum(columns[:i]) for i in range(len(columns))]
        return tuple(Value(x.storage, x.offset + s, c) for s, c in zip(starts, columns, strict=True))

    def rope(self, x: Value, positions: Symbol, rotation: Rotation, *, head_dim: int | None = None) -> Value:
        """Rotation of each head."""
        assert positions is INPUTS.positions
        assert not x.storage.samples
        turning = 2 * rotation.cos.shape[1]
        length = head_dim or turning
        assert turning <= length, (turning, length)
        assert x.columns % length == 0, (x.columns, length)
        node = Node("rope", x, rotation=rotation, length=length, turning=turning)
        return self._new(node, x.columns, samples=False)

    def kv_write(self, layer: int, k: Value, v: Value, slots: Symbol) -> None:
        """Store into the cache."""
        assert slots is INPUTS.slots
        assert k.columns == v.columns
        self.nodes.append(Node("kv_write", k, v, layer=layer))

    def paged_attention(
        self,
        layer: int,
        q: Value,
        batch: Inputs,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        sinks: Float32 | None = None,
    ) -> Value:
        """Attention over the cache."""
        assert batch is INPUTS
        node = Node("attention", q, layer=layer, window=window, number=scale, cap=cap or 0.0, vector=sinks)
        return self._new(node, q.columns, samples=False)

    def gated(self, x: Value, gate: Gate = "silu", up: Value | None = None) -> Value:
        """The first half gates the second half, or x gates up."""
        assert up is None or (up.columns, up.storage.samples) == (x.columns, x.storage.samples)
        columns = x.columns // 2 if up is None else x.columns
        return self._new(Node("gated", x, up, gate=gate), columns, samples=x.storage.samples)

    def experts(
        self, x: Value, logits: Value, experts: Experts, routing: Routing, gate: Gate = "silu"
    ) -> Value:
        """Routing, products by expert, and each row's sum: the library holds what is between them."""
        assert not x.storage.samples
        assert logits.columns == len(experts.gate_up) == len(experts.down)
        assert 1 <= routing.used <= logits.columns, routing
        assert all(v is None or len(v) == logits.columns for v in (experts.scales, experts.preference))
        hidden = experts.down[0].columns
        assert all((m.rows, m.columns) == (2 * hidden, x.columns) for m in experts.gate_up)
        assert all((m.rows, m.columns) == (x.columns, hidden) for m in experts.down)
        addresses = (
            np.array([matrix.address for matrix in matrices], np.uint64)
            for matrices in (experts.gate_up, experts.down)
        )
        mixture = Mixture(experts, routing, *addresses)
        self.nodes.append(Node("route", logits, mixture=mixture))
        self.nodes.append(Node("experts", x, mixture=mixture, gate=gate))
        return self._new(Node("combine", mixture=mixture), x.columns, samples=False)

    def scale(self, x: Value, factor: float) -> Value:
        """Elementwise product."""
        return self._new(Node("scale", x, number=factor), x.columns, samples=x.storage.samples)

    def cap(self, x: Value, limit: float) -> Value:
        """The hyperbolic tangent, stretched."""
        return self._new(Node("cap", x, number=limit), x.columns, samples=x.storage.samples)

    def center(self, x: Value) -> Value:
        """The row without its mean."""
        return self._new(Node("center", x), x.columns, samples=x.storage.samples)

    def add(self, a: Value, b: Value) -> Value:
        """Elementwise sum."""
        assert a.columns == b.columns
        assert a.storage.samples == b.storage.samples
        return self._new(Node("add", a, b), a.columns, samples=a.storage.samples)

    def gather(self, x: Value, rows: Symbol) -> Value:
        """The sample rows."""
        assert rows is INPUTS.sample_rows
        assert not x.storage.samples
        return self._new(Node("gather", x), x.columns, samples=True)

    def sample(self, logits: Value, sampling: Symbol) -> Sampled:
        """The end: a token for each sample row."""
        assert sampling is INPUTS.sampling
        assert logits.storage.samples
        assert logits.whole
        self.nodes.append(Node("sample", logits))
        return Sampled(logits)

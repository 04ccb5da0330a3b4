"""From recorded nodes to the library's operations: fewer passes over the values, and few buffers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import NamedTuple

from .library import GATES, KINDS, Buffer, Op, View, addressof
from .recorder import Matrix, Node, Storage, Value

_NO_WINDOW = 1 << 30
_NONE = View(-1, 0, 0)


class Lowered(NamedTuple):
    """Operations in order and the buffers they use; logits: number of the buffer that holds them."""

    ops: list[Op]
    buffers: list[Buffer]
    logits: int


def lower(nodes: list[Node]) -> Lowered:
    """A recorded forward as the library takes it.

    The rows of a buffer are only used by operations on the same rows.
    """
    nodes = _with_gated_linears(_with_quantized_inputs(_with_residuals(nodes)))
    buffers, numbers = _place(nodes)
    logits = next(node.x for node in nodes if node.kind == "sample")
    assert logits is not None
    return Lowered([_encode(node, numbers) for node in nodes], buffers, numbers[logits.storage])


def _with_residuals(nodes: list[Node]) -> list[Node]:
    """An add of a linear's whole result, used nowhere else, becomes the linear's residual."""
    uses = Counter(storage for node in nodes for storage in node.reads())
    result: list[Node] = []
    maker: dict[Storage, int] = {}
    for node in nodes:
        at = _absorbing(node, result, maker, uses) if node.kind == "add" else None
        if at is None:
            result.append(node)
            at = len(result) - 1
        else:
            linear = result[at]
            result[at] = replace(linear, y=node.x if node.y == linear.out else node.y, out=node.out)
        if node.out is not None:
            maker[node.out.storage] = at
    return result


def _absorbing(add: Node, nodes: list[Node], maker: dict[Storage, int], uses: Counter[Storage]) -> int | None:
    """The linear among these nodes that can add the other operand of `add` itself."""
    assert add.x is not None
    assert add.y is not None
    for product, other in ((add.y, add.x), (add.x, add.y)):
        at = maker[product.storage]
        alone = nodes[at].kind == "linear" and nodes[at].out == product and uses[product.storage] == 1
        if alone and nodes[at].y is None and maker[other.storage] < at:
            return at
    return None


def _with_quantized_inputs(nodes: list[Node]) -> list[Node]:
    """Before each product that wants quantized rows: their quantization, once for each value."""
    result: list[Node] = []
    known: dict[tuple[Value, int], Storage] = {}
    for node in nodes:
        if node.kind in ("linear", "experts"):
            assert node.x is not None
            x, planes, matrices = node.x, node.planes, _matrices(node)
            if any(matrix.quantized for matrix in matrices):
                key = (x, planes)
                if key not in known:
                    known[key] = Storage(x.columns, x.storage.samples, planes)
                    result.append(Node("quantize", x, blocks=known[key], planes=planes))
                plain = any(matrix.plain for matrix in matrices)
                node = replace(node, blocks=known[key], x=x if plain else None)
        result.append(node)
    return result


def _matrices(node: Node) -> tuple[Matrix, ...]:
    """Those that a product's rows are multiplied with."""
    if node.mixture is not None:
        return node.mixture.matrices
    assert node.matrix is not None
    return (node.matrix,)


def _with_gated_linears(nodes: list[Node]) -> list[Node]:
    """The product of a gate and an up projection, the gating and the quantization become one operation."""
    uses = Counter(storage for node in nodes for storage in node.reads())
    result: list[Node] = []
    for node in nodes:
        chain = [*result[-2:], node]
        if [link.kind for link in chain] == ["linear", "gated", "quantize"] and _is_one(chain, uses):
            assert node.blocks is not None
            out = Value(node.blocks, 0, node.blocks.columns)
            result[-2:] = [replace(chain[0], kind="gated_linear", gate=chain[1].gate, out=out)]
        else:
            result.append(node)
    return result


def _is_one(chain: list[Node], uses: Counter[Storage]) -> bool:
    linear, gated, quantize = chain
    assert linear.matrix is not None
    assert linear.out is not None
    assert gated.out is not None
    linked = gated.x == linear.out and gated.y is None and quantize.x == gated.out
    alone = uses[linear.out.storage] == uses[gated.out.storage] == 1
    return linked and alone and linear.matrix.halves and linear.y is None and quantize.planes == 1


def _place(nodes: list[Node]) -> tuple[list[Buffer], dict[Storage, int]]:
    """Buffers, and the one of each storage: taken over from a storage of the same shape that is read no more.

    Operations that share a stage work on different rows at the same time; storages of one shape keep a row's
    values in the same place, so those of different rows don't meet.
    """
    last = {storage: i for i, node in enumerate(nodes) for storage in node.reads()}
    buffers: list[Buffer] = []
    numbers: dict[Storage, int] = {}
    free: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        written = node.writes()
        if written is not None:
            shape = (written.columns, written.planes, written.samples)
            if free[shape]:
                numbers[written] = free[shape].pop()
            else:
                numbers[written] = len(buffers)
                buffers.append(Buffer(written.columns, written.planes, written.samples))
        touched = node.reads() if written is None else [*node.reads(), written]
        for storage in dict.fromkeys(touched):
            if last.get(storage, i) == i:
                free[storage.columns, storage.planes, storage.samples].append(numbers[storage])
    return buffers, numbers


def _encode(node: Node, numbers: dict[Storage, int]) -> Op:
    def view(value: Value | None) -> View:
        return _NONE if value is None else View(numbers[value.storage], value.offset, value.columns)

    op = Op(
        kind=KINDS.index(node.kind),
        samples=node.samples,
        planes=node.planes,
        layer=node.layer,
        window=_NO_WINDOW if node.window is None else min(node.window, _NO_WINDOW),
        length=node.length,
        turning=node.turning,
        gate=GATES.index(node.gate),
        number=node.number,
        cap=node.cap,
        x=view(node.x),
        y=view(node.y),
        out=view(node.out),
        blocks=_NONE if node.blocks is None else View(numbers[node.blocks], 0, node.blocks.columns),
    )
    if node.matrix is not None:
        op.weight, op.limit = node.matrix.address, node.matrix.rows
    if node.vector is not None:
        op.weight = addressof(node.vector)
    if node.bias is not None:
        op.bias = addressof(node.bias)
    if node.mixture is not None:
        experts, routing, gate_up, down = node.mixture
        op.experts, op.used = len(gate_up), routing.used
        op.over_all, op.sigmoid = routing.weights == "all", routing.scores == "sigmoid"
        op.weight, op.down = addressof(gate_up), addressof(down)
        if experts.gate_up_bias is not None:
            op.bias = addressof(experts.gate_up_bias)
        if experts.down_bias is not None:
            op.down_bias = addressof(experts.down_bias)
        if experts.scales is not None:
            op.expert_scales = addressof(experts.scales)
        if experts.preference is not None:
            op.preference = addressof(experts.preference)
    if node.rotation is not None:
        op.cos, op.sin = addressof(node.rotation.cos), addressof(node.rotation.sin)
        op.interleaved, op.limit = node.rotation.layout == "interleaved", len(node.rotation.cos)
    return op

"""The operations of a decoder as a protocol, and what a backend does with them.

A decoder is Python written once against `Operations`. A backend either computes at once (the reference) or
records the calls into a program that it replays every step (the native backend); so a decoder may not look
into values, only pass them on. Row count, lengths and block tables are data of the step, never part of the
program.

Shapes. A value is a matrix [rows, columns], float32 unless said otherwise, one row a token. Heads lie side by
side in the columns: [rows, heads * head_dim].

Numerics contract: the bits of a row of a result depend on that row of the inputs (and on its own keys) alone;
not on the number of rows, their order, the padding, the number of threads or the instruction set. Attention
reads K and V as stored, also for keys written in the same step. Ties round to even; sums run in an order
fixed by positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from .arrays import Float32, Int32
from .cache_format import CacheShape
from .program import Limits, Program
from .weights import Weight

Value = Any
"""A backend's own value: a tensor, or a node of the program being recorded."""

Handle = Any
"""A backend's own form of a weight, made by `Backend.place_*`."""

RopeLayout = Literal["half", "interleaved"]
"""Which columns of a head rotate together: (i, i + head_dim / 2), or (2 i, 2 i + 1)."""

Gate = Literal["silu", "gelu_tanh", "gelu", "clamped"]
"""What becomes of a gate before it multiplies; see `kernels.arithmetic.gated`."""

RoutingScores = Literal["softmax", "sigmoid"]
"""What becomes of router logits: a softmax of all, or the logistic function of each."""

RoutingWeights = Literal["chosen", "all"]
"""What the scores of the chosen experts are divided by: by their sum, or by that of all, so by nothing."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arrays of a `Step` as values of a backend, as a decoder sees them; `sampling` is the whole step."""

    tokens: Value
    positions: Value
    slots: Value
    sequences: Value
    block_tables: Value
    sample_rows: Value
    sampling: Value


class Rotation(NamedTuple):
    """Rotary tables where a backend wants them, float32 [positions, head_dim / 2]."""

    cos: Value
    sin: Value
    layout: RopeLayout


class Experts(NamedTuple):
    """Placed weights of a mixture of experts, one of each tuple an expert.

    gate_up: [2 * hidden, width], gate above up. down: [width, hidden]. gate_up_bias, down_bias: float32
    [experts, outputs], or None. scales: float32 [experts], what an expert's weight is multiplied by, or None.
    preference: float32 [experts], what is added to the scores where experts are chosen, but not to their
    weights (arXiv 2408.15664), or None.
    """

    gate_up: tuple[Handle, ...]
    down: tuple[Handle, ...]
    gate_up_bias: Handle | None = None
    down_bias: Handle | None = None
    scales: Handle | None = None
    preference: Handle | None = None


class Routing(NamedTuple):
    """How a row's experts follow from its router logits.

    The `used` experts with the largest scores are chosen, with what they are preferred by; NaN counts as the
    largest, of equal ones the first counts more. Their weights are their scores, or these by their sum.
    A softmax without preferences is taken of those logits alone that count in the end.
    """

    used: int
    weights: RoutingWeights = "chosen"
    scores: RoutingScores = "softmax"


class Operations(Protocol):
    """What a decoder may do. Each method returns a new value and leaves its arguments alone."""

    def embedding(self, table: Handle, tokens: Value) -> Value:
        """Rows of the table [vocabulary, width] for int32 tokens [rows] -> [rows, width]."""

    def rms_norm(self, x: Value, weight: Handle, eps: float) -> Value:
        """Root mean square norm (arXiv 1910.07467): x / sqrt(mean(x^2) + eps) * weight.

        Over each run of len(weight) columns: the whole row, or each head of it.
        """

    def linear(self, x: Value, weight: Handle, bias: Handle | None = None, *, planes: int = 1) -> Value:
        """Matrix product x @ weight.T + bias -> [rows, outputs].

        Backends that quantize activations use `planes` int8 planes a value (1 or 2): 2 for sensitive inputs.
        """

    def split(self, x: Value, columns: tuple[int, ...]) -> tuple[Value, ...]:
        """Side-by-side parts of x with these numbers of columns."""

    def rope(self, x: Value, positions: Value, rotation: Handle, *, head_dim: int | None = None) -> Value:
        """Rotary embedding (arXiv 2104.09864) of each head of x by the table's angles at int32 positions
        [rows].

        The first columns of a head turn, as many as the tables have angles for; those behind them stay.
        head_dim: None if all turn.
        """

    def kv_write(self, layer: int, k: Value, v: Value, slots: Value) -> None:
        """Store k and v [rows, kv_heads * head_dim] of a layer into the cache at int32 slots [rows]."""

    def paged_attention(
        self,
        layer: int,
        q: Value,
        batch: Inputs,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        sinks: Handle | None = None,
    ) -> Value:
        """Causal attention of q [rows, heads * head_dim] over the cached keys of each row's own sequence.

        Query head h reads key head h // (heads / kv_heads) (MHA, GQA, MQA). A row at position p sees the keys
        at positions max(0, p - window + 1) to p; its own among them. cap: scores s, already scaled, become
        cap * tanh(s / cap). sinks: a vector [heads], for each head a score, neither scaled nor capped, that
        has its share of the softmax and no value (arXiv 2309.17453; learned, as in gpt-oss: its model card).
        """

    def gated(self, x: Value, gate: Gate = "silu", up: Value | None = None) -> Value:
        """The gate's activation times up (arXiv 2002.05202).

        For x = [gate | up] -> [rows, columns / 2], or for a gate x and an up apart -> [rows, columns].
        """

    def experts(
        self, x: Value, logits: Value, experts: Experts, routing: Routing, gate: Gate = "silu"
    ) -> Value:
        """A mixture of experts (arXiv 1701.06538): each row's sum of its experts' results by their weights.

        x [rows, width], router logits [rows, experts] -> [rows, width]. An expert is a gated feed-forward
        network, computed for all rows that chose it together. The sum runs from the first choice to the last.
        """

    def scale(self, x: Value, factor: float) -> Value:
        """Elementwise product with a float32 number."""

    def cap(self, x: Value, limit: float) -> Value:
        """Elementwise limit * tanh(x / limit)."""

    def center(self, x: Value) -> Value:
        """Each row minus its mean: before a root mean square norm it makes that a layer norm without offset
        (arXiv 1607.06450).
        """

    def add(self, a: Value, b: Value) -> Value:
        """Elementwise sum."""

    def gather(self, x: Value, rows: Value) -> Value:
        """The rows of x named by int32 rows [n] -> [n, columns]."""

    def sample(self, logits: Value, sampling: Value) -> Value:
        """The next token of each row of logits [samples, vocabulary]: the result of the program."""


Forward = Callable[[Operations, Inputs], Value]
"""A decoder bound to its weights: takes operations and a step's inputs, returns what `Operations.sample`
returned.
"""


class Backend(Protocol):
    """Owns weights, KV memory and programs of one model on one device. Not thread-safe: one thread uses it.

    name: what the user sees. device: where it computes, for people. exact: the numerics contract holds here
    (found by `self_check` where it can't be promised). weight_bytes, cache_bytes: memory in use.
    shares_arrays: it computes in main memory, and reads rotation tables where they lie. replaced: kernels
    that fail on this machine, so plain torch computes in their place. working_bytes: what programs take
    besides, for buffers and captured graphs, as far as that is the device's.
    """

    name: str
    device: str
    exact: bool
    shares_arrays: bool
    weight_bytes: int
    cache_bytes: int

    @property
    def replaced(self) -> tuple[str, ...]:
        """See above; they can become more while a model runs."""

    @property
    def working_bytes(self) -> int:
        """See above."""

    def place_matrix(self, *parts: Weight) -> Handle:
        """A matrix made of blocks of rows, each in a format of its own (q, k and v of one layer, say)."""

    def place_vector(self, values: Float32) -> Handle:
        """A float32 vector, or several one below the other: norm weights, biases."""

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Handle:
        """Tables [positions, head_dim / 2] for `Operations.rope`, contiguous float32.

        With `shares_arrays` a line need not be there before the step that reads it. No part of weight_bytes.
        """

    def free_bytes(self) -> int:
        """Bytes of the device's memory that can be taken now."""

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory. MemoryError: it does not fit."""

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks in all layers, before the next step writes to them."""

    def capture(self, forward: Forward, limits: Limits) -> Program:
        """Prepare a forward for steps up to these limits."""

    def read_bandwidth(self, nbytes: int) -> float:
        """Measured peak in bytes a second: best of a few plain reads of about so many bytes of weights."""

    def close(self) -> None:
        """Free threads and memory; nothing may be called afterwards."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """What a backend is made with. threads: CPU threads, None for all that affinity and quota allow.

    cpu_isa: instruction set of the native backend: auto, amx, avx512, avx2 or portable.
    findings_folder: where a backend may keep what it has found out about this machine; None: nowhere.
    replays: whether steps may be recorded, and replayed; not where they wait for other processes.
    exact: whether the numerics contract has to hold; else a backend may take products that break it.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int | None = None
    cpu_isa: str = "auto"
    findings_folder: str | None = None
    exact: bool = True
    replays: bool = True

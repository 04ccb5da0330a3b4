"""Models of random weights in real shapes, made in memory: for measuring where there are no files.

An `EngineConfig` takes one as its model. All values of a format come out of one pool, so that billions
of them are made as fast as they are copied; the same seed makes the same model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.capturing import capture_within
from engine.config import EngineConfig
from engine.memory_plan import size_kv_cache
from engine.model import LoadedModel, limits_of
from engine.models.decoder import decoder
from engine.models.placing import place_rotations, place_tensors
from engine.models.spec import ExpertsSpec, LayerSpec, ModelSpec
from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.selection import select_backend
from engine.sequence import Sequence
from engine.speculative.drafter import Proposal
from engine.speculative.pairing import Drafting
from engine.tokenization import load_tokenizer
from kernels.backends import open_backend
from kernels.formats import FORMATS, group_count
from kernels.interface import Routing
from kernels.weights import Packed, Plain, Weight

POOL = 1 << 22
"""Values of a pool."""


@dataclass(frozen=True, slots=True)
class Shape:
    """experts: of them `used` for a token, each `feed_forward` wide; 0: one dense network."""

    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    experts: int = 0
    used: int = 0
    context: int = 16384

    def spec(self) -> ModelSpec:
        """As the decoder takes it."""
        mixture = ExpertsSpec(self.experts, self.feed_forward, Routing(self.used)) if self.experts else None
        return ModelSpec(
            architecture="random",
            layers=tuple(LayerSpec(experts=mixture) for _ in range(self.layers)),
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            feed_forward=self.feed_forward,
            vocabulary=self.vocabulary,
            context_length=self.context,
            norm_eps=1e-5,
        )

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Shapes of the matrices of a layer, by role."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        own = {
            "q": (q, self.width),
            "k": (kv, self.width),
            "v": (kv, self.width),
            "output": (self.width, q),
            "router": (self.experts, self.width),
        }
        prefix = "expert_" if self.experts else ""
        for role in ("gate", "up"):
            own[prefix + role] = (self.feed_forward, self.width)
        return own | {f"{prefix}down": (self.width, self.feed_forward)}


class RandomTensors:
    """`engine.models.placing.Tensors` of random values about 1 / sqrt(columns) large."""

    def __init__(self, shape: Shape, format: str, seed: int) -> None:
        self._shape = shape
        self._format = format
        draw = np.random.default_rng(seed)
        self._normal = draw.standard_normal(POOL, np.float32)
        self._bytes = draw.integers(0, 256, POOL, np.uint8)
        self._pools: dict[tuple[str, int], NDArray[Any]] = {}
        self._offset = 0

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in ("embedding", "norm", "head") or name.endswith(("attention_norm", "mlp_norm"))

    def get(self, name: str) -> Weight | None:
        """The tensor: another one at each call."""
        if name.endswith("norm"):
            known = self.has(name)
            return Plain(np.ones(self._shape.width, np.float32), "f32") if known else None
        if name in ("embedding", "head"):
            size = self._shape.vocabulary, self._shape.width
            return self.matrix(size, "q8" if FORMATS[self._format].packed else self._format)
        role = name.split(".")[1]
        if role not in self._shape.matrices():
            return None
        plain = role == "router" and FORMATS[self._format].packed
        return self.matrix(self._shape.matrices()[role], "f32" if plain else self._format)

    def _take(self, pool: NDArray[Any], count: int) -> NDArray[Any]:
        """So many values of a pool, from another place each time."""
        self._offset = (self._offset + 7919) % POOL
        first = pool[self._offset : self._offset + count]
        return np.concatenate([first, np.resize(pool, count - len(first))])

    def matrix(self, size: tuple[int, int], format: str) -> Weight:
        """One of any shape."""
        rows, columns = size
        form, step = FORMATS[format], np.float32(columns**-0.5)
        if not form.packed:
            if (format, columns) not in self._pools:
                values = self._normal * step
                short = (values.view(np.uint32) >> 16) if format == "bf16" else values
                self._pools[format, columns] = short.astype(form.dtype)
            return Plain(self._take(self._pools[format, columns], rows * columns).reshape(size), format)
        groups = group_count(columns)
        codes = self._take(self._bytes, rows * groups * form.code_bytes).view(form.dtype)
        scale = step * np.float32(2.0 / 2**form.bits * 1.7)
        scales = np.full((rows, -(-columns // form.group)), scale, form.scale_type)
        minima = scales * form.scale_type(-7.5) if form.minima else None
        return Packed(format, size, codes.reshape(rows, groups, form.code_bytes), scales, minima)


class Oracle:
    """Drafts with a set acceptance: it knows what replies go on with, and says so in that share of cases."""

    name = "set acceptance"

    def __init__(self, replies: Iterable[list[int]], acceptance: float) -> None:
        """replies: prompt and reply of each conversation."""
        self._replies = [list(reply) for reply in replies]
        self._acceptance = acceptance

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        """What follows, with another token where chance would have it."""
        return [Proposal(self._next(list(sequence.tokens), most)) for sequence in sequences]

    def _next(self, tokens: list[int], most: int) -> list[int]:
        for reply in self._replies:
            if reply[: len(tokens)] == tokens:
                end = min(len(reply), len(tokens) + most)
                return [self._said(reply[i], i) for i in range(len(tokens), end)]
        return []

    def _said(self, token: int, position: int) -> int:
        draw = (position * 2654435761 % 4294967296) / 4294967296
        return token if draw < self._acceptance else token ^ 1


@dataclass(slots=True)
class RandomModel:
    """What `EngineConfig.model` may be. graphs: whether steps are recorded. drafter: guesses for replies."""

    shape: Shape
    format: str
    seed: int = 0
    graphs: bool = True
    drafter: Oracle | None = None
    weight_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.shape.name} {self.format}"

    def load(self, config: EngineConfig) -> LoadedModel:
        """Called by the engine."""
        context = min(config.context_length or self.shape.context, self.shape.context)
        spec = replace(self.shape.spec(), context_length=context)
        selection = select_backend(config)
        backend = open_backend(selection.name, selection.settings)
        weights = place_tensors(spec, RandomTensors(self.shape, self.format, self.seed), backend)
        self.weight_bytes = weights.streamed_bytes
        shape = size_kv_cache(config, spec.cached, context, backend.free_bytes(), backend.device)
        positions = min(context, shape.blocks * shape.block_size)
        rotations = place_rotations(spec, weights, backend, positions)
        drafting = Drafting(config)
        limits = limits_of(config, context, drafting)
        captured = capture_within(
            backend,
            shape,
            lambda: backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits),
            limits,
            positions,
            least=1,
            beside=drafting.allocate,
        )
        recorded = getattr(captured.program, "graphs", None)
        if not self.graphs and recorded is not None:
            recorded.stop("they are not wanted")
        shape = captured.shape
        traffic = Traffic.of(spec, weights.streamed_bytes, shape.layer_bytes, weights.expert_bytes)
        runner = ModelRunner(backend, captured.program, traffic, config.block_size, None, rotations)
        tokenizer = _tokenizer()
        guesses = drafting.drafter(str(self), tokenizer, spec.vocabulary, backend.exact)
        return LoadedModel(
            name=str(self),
            runner=runner,
            tokenizer=tokenizer,
            vocabulary=spec.vocabulary,
            context_length=context,
            blocks=shape.blocks,
            block_size=config.block_size,
            end_ids=frozenset(),
            chat_template=None,
            defaults={},
            notes=captured.notes,
            drafter=self.drafter or guesses,
        )


def _tokenizer() -> Any:
    """One token a byte: replies are counted, not read."""
    import tokenizers

    with tempfile.TemporaryDirectory() as folder:
        pipeline = tokenizers.Tokenizer(tokenizers.models.BPE({chr(0x100 + i): i for i in range(256)}, []))
        pipeline.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        pipeline.decoder = tokenizers.decoders.ByteLevel()
        pipeline.save(str(Path(folder) / "tokenizer.json"))
        return load_tokenizer(folder)

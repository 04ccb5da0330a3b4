"""A model in several processes as the engine's thread has it: loaded, asked for steps, closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernels.cache_format import CachedLayer, CacheShape
from kernels.interface import Float32, Int32, Limits, StepOutput
from kernels.machine import free_memory, usable_cpus
from kernels.step import Step

from ..config import EngineConfig
from ..memory_plan import size_kv_cache
from ..models.spec import ModelSpec
from ..roofline import Traffic
from ..selection import Selection
from ..types import EngineError
from .channel import COPIES, RESULT_HEADER, STEP, STEP_WITH_LOGITS, frame
from .shares import Share, Split, share_of
from .team import Team

if TYPE_CHECKING:
    from ..loading.checkpoint import Checkpoint


class RankedModel:
    """The ranks of a model as owner and as program of a `ModelRunner`."""

    def __init__(self, team: Team, limits: Limits, name: str, exact: bool, weight_bytes: int) -> None:
        self.name = name
        self.exact = exact
        self.weight_bytes = weight_bytes
        self._team = team
        self._limits = limits

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Before the next step; the ranks are told together with it."""
        pairs = frame(COPIES, np.stack((sources, targets)).astype(np.int32))
        for rank in range(self._team.split.ranks):
            self._team.queue(rank, pairs)

    def launch(self, step: Step, *, logits: bool = False) -> PendingStep:
        """Send the step to all ranks. ValueError: it exceeds the limits. EngineError: a rank has failed."""
        self._limits.check(step.counts)
        parts = frame(STEP_WITH_LOGITS if logits else STEP, step.memory)
        for rank in range(self._team.split.ranks):
            self._team.queue(rank, parts)
        self._team.flush()
        return PendingStep(self._team, step.counts.samples)

    def read_bandwidth(self, nbytes: int) -> float:
        """Of all ranks at the same time, each with its part of the bytes; in bytes a second."""
        ranks = self._team.split.ranks
        found = self._team.ask("bandwidth", [{"nbytes": -(-nbytes // ranks)}] * ranks)
        return float(sum(each["bandwidth"] for each in found))

    def close(self) -> None:
        """End the ranks."""
        self._team.close()


class PendingStep(NamedTuple):
    """A step that the ranks compute."""

    team: Team
    samples: int

    def result(self) -> StepOutput:
        """Wait for all ranks. EngineError(engine_failed): one has ended, or hangs."""
        tokens, logits, expert_bytes = np.empty(0, np.int32), None, 0
        for message in self.team.answers():
            samples, columns, read = RESULT_HEADER.unpack_from(message.body)
            expert_bytes += read
            if samples:
                tokens = np.frombuffer(message.body, np.int32, samples, RESULT_HEADER.size)
                if columns:
                    values: Float32 = np.frombuffer(
                        message.body, np.float32, samples * columns, RESULT_HEADER.size + tokens.nbytes
                    )
                    logits = values.reshape(samples, columns)
        return StepOutput(tokens, logits, expert_bytes)


class Loaded(NamedTuple):
    """A model in its ranks. device: where, for people."""

    model: RankedModel
    traffic: Traffic
    shape: CacheShape
    device: str


def load_ranks(
    config: EngineConfig,
    checkpoint: Checkpoint,
    selection: Selection,
    context: int,
    limits: Limits,
    watch: Callable[[float], None] | None = None,
) -> Loaded:
    """Start the ranks, have each load its part, and give all a KV cache of the same number of blocks.

    watch: told how much of the files has been used; what it raises ends the load.
    EngineError: model_invalid (it can't be cut like that, or a rank found so), out_of_memory, engine_failed.
    """
    split, spec = split_of(config), replace(checkpoint.spec, context_length=context)
    shares = shares_of(spec, split)
    threads = max(1, (selection.settings.threads or usable_cpus()) // split.ranks)
    settings = {
        "split": list(split),
        "backend": selection.name,
        "device": config.device,
        "dtype": config.dtype,
        "threads": threads,
    }
    files = {
        "path": str(checkpoint.path.absolute()),
        "quantization": checkpoint.tensors.quantization,
        "context": context,
    }
    team = Team(split)
    try:
        opened = team.ask("open", [settings] * split.ranks, watch)
        placed = team.ask("load", [files] * split.ranks, watch)
        on_cpu = opened[0]["device"] == "cpu"
        free = [free_memory() // split.ranks] * split.ranks if on_cpu else [p["free_bytes"] for p in placed]
        shape = kv_shape(config, spec, shares, context, free)
        cache = {
            "blocks": shape.blocks,
            "block_size": shape.block_size,
            "format": shape.format,
            "positions": min(context, shape.blocks * shape.block_size),
            "limits": list(astuple(limits)),
        }
        team.ask("begin", [cache] * split.ranks, watch)
    except BaseException:
        team.close()
        raise
    streamed, experts, weights = (
        sum(part[name] for part in placed) for name in ("streamed_bytes", "expert_bytes", "weight_bytes")
    )
    exact = all(part["exact"] for part in opened)
    model = RankedModel(team, limits, opened[0]["backend"], exact, weights)
    traffic = Traffic.of(spec, streamed, shape.layer_bytes, experts)
    return Loaded(model, traffic, shape, f"{opened[0]['device']} x {split.ranks}")


def split_of(config: EngineConfig) -> Split:
    """How a configuration has a model cut."""
    return Split(config.tensor_parallel, config.pipeline_parallel)


def shares_of(spec: ModelSpec, split: Split) -> list[Share]:
    """Of all ranks. EngineError(model_invalid): the model can't be cut like that."""
    try:
        return [share_of(spec, split, rank) for rank in range(split.ranks)]
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error


def kv_shape(
    config: EngineConfig, spec: ModelSpec, shares: list[Share], context: int, free: list[int]
) -> CacheShape:
    """The cache of all ranks together, where key heads that several hold count as often.

    free: bytes of each rank. The rank with the least room for its part decides the number of blocks.
    """
    ranks = len(shares)
    if config.kv_memory is not None:
        config = replace(config, kv_memory=max(1, config.kv_memory // ranks))
    shapes = map(lambda share, room: size_kv_cache(config, share.spec, context, room), shares, free)
    blocks = min(shape.blocks for shape in shapes)
    held = [0] * len(spec.layers)
    for share in shares:
        for layer, own in zip(share.layers, share.of_layers, strict=True):
            held[layer] += len(own.kv_heads)
    kept = tuple(
        CachedLayer(heads, spec.sizes(i).head_dim)
        for i, heads in enumerate(held)
        if spec.layers[i].shares is None
    )
    one = size_kv_cache(replace(config, kv_blocks=1), spec, context, 0)
    return replace(one, layers=kept, blocks=blocks)

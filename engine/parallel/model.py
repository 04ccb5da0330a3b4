"""A model in several processes as the engine's thread has it: loaded, asked for steps, closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernels.cache_format import CachedLayer, CacheShape
from kernels.interface import Float32, Int32, Limits, StepOutput
from kernels.machine import free_memory, usable_cpus
from kernels.step import Step

from ..capturing import largest_step
from ..config import EngineConfig
from ..fitting import check_fit, fitted
from ..memory_plan import size_kv_cache
from ..models.spec import ModelSpec
from ..roofline import Traffic
from ..runner import ModelRunner
from ..selection import select_backend
from ..types import EngineError
from .channel import COPIES, RESULT_HEADER, STEP, STEP_WITH_LOGITS, frame
from .shares import Share, Split, share_of
from .team import Team

if TYPE_CHECKING:
    from ..loading.checkpoint import Checkpoint
    from ..model import LoadedModel


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


def load_parallel(
    config: EngineConfig,
    checkpoint: Checkpoint,
    context: int,
    watch: Callable[[float], None] | None = None,
    constrained: bool = False,
) -> LoadedModel:
    """As `engine.model.load_model`: in processes that each load their part and get as many KV blocks.

    A draft model computes here, as it would without them: it is small.
    EngineError, besides: engine_failed (the processes can't be started, or one has ended).
    """
    from ..model import drafting_for, limits_of, loaded_model, prepared_tokenizer

    split, spec = split_of(config), replace(checkpoint.spec, context_length=context)
    shares = shares_of(spec, split)
    try:
        selection = select_backend(config)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error
    kind = selection.settings.device.partition(":")[0]
    with ExitStack() as undo, ThreadPoolExecutor(1, thread_name_prefix="tokenizer") as beside:
        # The ranks use other processors meanwhile.
        made = beside.submit(prepared_tokenizer, checkpoint, spec.vocabulary, constrained)
        team = Team(split)
        undo.callback(team.close)
        settings = {
            "split": list(split),
            "backend": selection.name,
            "device": kind,
            "dtype": config.dtype,
            "threads": max(1, (selection.settings.threads or usable_cpus()) // split.ranks),
        }
        opened = team.ask("open", [settings] * split.ranks, watch)
        exact = all(rank["exact"] for rank in opened)
        free = free_memory() if kind == "cpu" else sum(rank["free_bytes"] for rank in opened)
        alone = replace(config, tensor_parallel=1, pipeline_parallel=1)
        drafting = drafting_for(alone, checkpoint, context, exact, free)
        undo.callback(drafting.close)
        checkpoint = fitted(checkpoint, config, selection.name, free - drafting.weight_bytes, kind)
        check_fit(checkpoint, selection.name, free - drafting.weight_bytes)
        files = {
            "path": str(checkpoint.path.absolute()),
            "quantization": checkpoint.tensors.quantization,
            "context": context,
        }
        placed = team.ask("load", [files] * split.ranks, watch)
        room = [rank["free_bytes"] for rank in placed]
        if kind == "cpu":  # all have the same memory
            room = [free_memory() // split.ranks] * split.ranks
        shape = kv_shape(config, spec, shares, context, room, kind, drafting.cached)
        limits = limits_of(config, context, drafting)
        positions = min(context, shape.blocks * shape.block_size)
        cache = {
            "blocks": shape.blocks,
            "block_size": shape.block_size,
            "format": shape.format,
            "positions": positions,
            "limits": list(astuple(limits)),
        }
        team.ask("begin", [cache] * split.ranks, watch)
        streamed, experts, weights = (
            sum(rank[name] for rank in placed) for name in ("streamed_bytes", "expert_bytes", "weight_bytes")
        )
        model = RankedModel(team, limits, opened[0]["backend"], exact, weights)
        if kind != "cpu":  # whether there is room for it is known before anybody waits for a reply
            model.launch(largest_step(limits, shape, positions)).result()
        prepared = made.result()
        drafter = drafting.drafter(checkpoint.name, prepared[0], spec.vocabulary, shape.blocks, exact)
        undo.pop_all()
    traffic = Traffic.of(spec, streamed, shape.layer_bytes, experts)
    runner = ModelRunner(model, model, traffic, config.block_size)
    notes = (*checkpoint.notes, *selection.notes, *drafting.notes)
    device = f"{opened[0]['device']} x {split.ranks}"
    return loaded_model(
        config, checkpoint, runner, prepared, context, shape, notes, device, drafter, split.words()
    )


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
    config: EngineConfig,
    spec: ModelSpec,
    shares: list[Share],
    context: int,
    room: list[int],
    device: str,
    beside: Sequence[CachedLayer] = (),
) -> CacheShape:
    """The cache of all ranks together, where key heads that several hold count as often.

    room: free bytes of each rank; the one with the least for its part decides the number of blocks.
    beside: layers of a draft model, which has as many.
    """
    if config.kv_memory is not None:
        config = replace(config, kv_memory=max(1, config.kv_memory // len(shares)))
    own = [
        size_kv_cache(config, share.spec, context, free, device, () if rank else beside)
        for rank, (share, free) in enumerate(zip(shares, room, strict=True))
    ]
    heads = dict.fromkeys(range(len(spec.layers)), 0)
    for share in shares:
        for layer, part in zip(share.layers, share.of_layers, strict=True):
            heads[layer] += len(part.kv_heads)
    held = tuple(
        CachedLayer(count, spec.sizes(layer).head_dim)
        for layer, count in heads.items()
        if spec.layers[layer].shares is None
    )
    return replace(own[0], layers=held, blocks=min(shape.blocks for shape in own))

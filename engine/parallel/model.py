"""Loading a model in several processes, and the memory that each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from kernels.cache_format import CachedLayer, CacheShape
from kernels.machine import free_memory, usable_cpus

from ..capturing import largest_step
from ..config import EngineConfig
from ..fitting import check_fit, fitted
from ..memory_plan import size_kv_cache
from ..models.spec import ModelSpec
from ..roofline import Traffic
from ..runner import ModelRunner
from ..selection import select_backend
from ..texts import texts_beside
from ..types import EngineError
from .program import ParallelProgram
from .shares import Share, Split, share_of
from .team import FIRST_BYTES, RANK_BYTES, Team

if TYPE_CHECKING:
    from ..loading.checkpoint import Checkpoint
    from ..model import LoadedModel


def load_parallel(
    config: EngineConfig,
    checkpoint: Checkpoint,
    context: int,
    watch: Callable[[float | str], None] | None = None,
    constrained: bool = False,
) -> LoadedModel:
    """As `engine.model.load_model`: in processes that each load their part and get as many KV blocks.

    A draft model computes here, as it would without them: it is small.
    EngineError, besides: engine_failed (the processes can't be started, or one has ended).
    """
    from ..model import drafting_for, limits_of, loaded_model

    split, spec = split_of(config), replace(checkpoint.spec, context_length=context)
    shares = shares_of(spec, split)
    try:
        selection = select_backend(config)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error
    kind = selection.settings.device.partition(":")[0]
    with ExitStack() as undo, texts_beside(checkpoint, constrained) as texts_made:
        team = Team(split, watch)
        undo.callback(team.close)
        settings = {
            "split": list(split),
            "backend": selection.name,
            "device": kind,
            "dtype": config.dtype,
            "exact": config.exact,
            "findings": selection.settings.findings_folder,
            "threads": max(1, (selection.settings.threads or usable_cpus()) // split.ranks),
        }
        opened = team.ask("open", [settings] * split.ranks, watch)
        exact = all(rank["exact"] for rank in opened)
        replaced = tuple(dict.fromkeys(name for rank in opened for name in rank["replaced"]))
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
        drafting.allocate(shape.blocks)
        team.ask("begin", [cache] * split.ranks, watch)
        streamed, experts, weights = (
            sum(rank[name] for rank in placed) for name in ("streamed_bytes", "expert_bytes", "weight_bytes")
        )
        device = f"{opened[0]['device']} x {split.ranks}"
        program = ParallelProgram(team, limits, opened[0]["backend"], device, exact, weights, replaced)
        if kind != "cpu":  # whether there is room for it is known before anybody waits for a reply
            program.launch(largest_step(limits, shape, positions)).result()
        texts = texts_made()
        drafter = drafting.drafter(checkpoint.name, texts.tokenizer, spec.vocabulary, exact)
        traffic = Traffic.of(spec, streamed, shape.layer_bytes, experts)
        runner = ModelRunner(program, program, traffic, config.block_size)
        notes = (*checkpoint.notes, *selection.notes, *drafting.notes)
        model = loaded_model(
            config, checkpoint, runner, texts, context, shape, notes, device, drafter, split.words()
        )
        undo.pop_all()
    return model


def split_of(config: EngineConfig) -> Split:
    """How a configuration has a model cut."""
    return Split(config.tensor_parallel, config.pipeline_parallel)


def shares_of(spec: ModelSpec, split: Split) -> list[Share]:
    """Of all ranks. EngineError(model_invalid): the model can't be cut like that."""
    try:
        return [share_of(spec, split, rank) for rank in range(split.ranks)]
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error


def planned_cache(
    config: EngineConfig,
    spec: ModelSpec,
    context: int,
    free: Sequence[int],
    taken: int,
    device: str,
    beside: Sequence[CachedLayer] = (),
) -> tuple[str, CacheShape]:
    """How a model would be shared, for people, and its cache. free: bytes as `free_of_ranks` has them; taken:
    of all weights, about as many in each rank.

    EngineError(model_invalid): it can't be cut like that.
    """
    split = split_of(config)
    shares = shares_of(replace(spec, context_length=context), split)
    if len(free) < split.ranks:  # all have the same memory
        taken += FIRST_BYTES + RANK_BYTES * (split.ranks - 1)
        free = [sum(free) // split.ranks] * split.ranks
    room = [max(0, each - taken // split.ranks) for each in free]
    return split.words(), kv_shape(config, spec, shares, context, room, device, beside)


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

    room: free bytes of each rank; where nobody says how large the cache is, the one with the least for its
    part decides the number of blocks. beside: layers of a draft model, which has as many.
    """
    heads = dict.fromkeys(range(len(spec.layers)), 0)
    for share in shares:
        for layer, part in zip(share.layers, share.of_layers, strict=True):
            heads[layer] += len(part.kv_heads)
    held = [
        CachedLayer(count, spec.sizes(layer).head_dim)
        for layer, count in heads.items()
        if spec.layers[layer].shares is None
    ]
    if config.kv_blocks is not None or config.kv_memory is not None:  # of all ranks, however uneven
        return size_kv_cache(config, held, context, sum(room), device, beside)
    own = [
        size_kv_cache(config, share.spec.cached, context, free, device, () if rank else beside)
        for rank, (share, free) in enumerate(zip(shares, room, strict=True))
    ]
    return replace(own[0], layers=tuple(held), blocks=min(shape.blocks for shape in own))

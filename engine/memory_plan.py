"""What a model takes of the memory: the size of its KV cache, and all of it from the headers of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernels.cache_format import CachedLayer, CacheShape

from .config import EngineConfig, Quantization
from .types import EngineError
from .workload import Workload, workload_of

if TYPE_CHECKING:
    from .loading.checkpoint import Checkpoint

KV_SHARE_OF_MEMORY = 0.25
"""Part of the free main memory that the KV cache may take when nobody says how much."""

KV_SHARE_OF_GPU = 0.9
"""Part of a GPU's memory that is free once the weights are there. It has no other use; what is left is for
the values of a step, and for what other programs come to need."""

MOST_BLOCKS = 1 << 20
"""Of a cache whose size nobody asked for: a file that declares a tiny model with a huge context gets no more.
Each block takes some bookkeeping."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes in bytes. blocks: of the KV cache, block_size tokens each. quantization: of most weights.

    notes: sentences about what is not as one would expect it.
    active_bytes: of the weights that one token goes through; fewer than all where there are experts.
    draft: the draft model's name, "" if there is none; its keys and values are part of the KV cache.
    ranks: how several processes share it, for people; free_bytes are those of all their GPUs then.
    """

    model: str
    quantization: str
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    blocks: int
    block_size: int
    context_length: int
    free_bytes: int
    notes: tuple[str, ...] = ()
    active_bytes: int = 0
    draft: str = ""
    draft_weight_bytes: int = 0
    ranks: str = ""

    @property
    def nbytes(self) -> int:
        """All that is taken."""
        return self.weight_bytes + self.draft_weight_bytes + self.kv_bytes

    def conversations(self, tokens: int) -> int:
        """How many conversations of this many tokens the KV cache holds at once; each takes whole blocks."""
        return self.blocks // -(-tokens // self.block_size)


def size_kv_cache(
    config: EngineConfig,
    layers: Sequence[CachedLayer],
    context_length: int,
    free: int,
    device: str = "cpu",
    beside: Sequence[CachedLayer] = (),
) -> CacheShape:
    """How many blocks a KV cache of these layers gets: kv_blocks, else kv_memory, else a share of the `free`
    bytes.

    beside: layers of a draft model, which has as many blocks and its share of those bytes. Never more blocks
    than max_sequences full contexts need. Raises EngineError(out_of_memory) if not even a block fits.
    """
    one = CacheShape(tuple(layers), 1, config.block_size, config.cache_format)
    both = replace(one, layers=(*one.layers, *beside))
    blocks = config.kv_blocks
    if blocks is None:
        share = KV_SHARE_OF_GPU if device.startswith("cuda") else KV_SHARE_OF_MEMORY
        memory = config.kv_memory if config.kv_memory is not None else int(free * share)
        useful = config.sequences * -(-context_length // config.block_size)
        blocks = min(memory // both.nbytes, useful, MOST_BLOCKS)
        if blocks < 1:
            given = f"kv_memory is {memory:,} bytes"
            if config.kv_memory is None:
                given = f"{free:,} bytes of memory are free; close other programs, or take a smaller model"
            raise EngineError(
                "out_of_memory",
                f"the KV cache needs at least {both.nbytes:,} bytes for one block, but {given}",
            )
    return replace(one, blocks=blocks)


def plan_memory(config: EngineConfig) -> MemoryPlan:
    """The plan an engine of this configuration would follow. EngineError: model_invalid, out_of_memory."""
    return plan_model(config).memory


class ModelPlan(NamedTuple):
    """A plan of the memory here, and what the model asks for: as it would be loaded here, as it is stored (or
    asked for), and with fewer bits than that, by their names. draft: what its draft model asks for.
    """

    memory: MemoryPlan
    here: Workload
    own: Workload
    lighter: Mapping[str, Workload]
    draft: Workload | None


def plan_model(config: EngineConfig) -> ModelPlan:
    """The plan of `plan_memory`, and what the model asks for. Reads its files' headers, once. EngineError."""
    from .fitting import fitted, unpacked_bytes
    from .loading.checkpoint import open_checkpoint
    from .parallel.devices import free_of_ranks
    from .selection import select_backend

    assert isinstance(config.model, (str, Path)), "a plan is for a model with files"
    checkpoint = open_checkpoint(config.model, config.quantization)
    context = checkpoint.context_length(config.context_length)
    try:
        selection = select_backend(config)
        rooms = free_of_ranks(selection.name, selection.settings, config.ranks)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error
    free = sum(rooms)
    device = selection.settings.device
    draft = _planned_draft(config, checkpoint.tensors.nbytes(), free)
    draft_weights = 0 if draft is None else draft.tensors.nbytes()
    stored = checkpoint
    checkpoint = fitted(checkpoint, config, selection.name, max(0, free - draft_weights), device)
    unpacked = unpacked_bytes(selection.name, device, config.dtype)
    weights, experts = (checkpoint.tensors.nbytes(experts=only, unpacked=unpacked) for only in (False, True))
    if config.pipeline_parallel > 1 and not checkpoint.tensors.has("head"):
        table = {"embedding": checkpoint.tensors.bound["embedding"]}  # in the first stage and in the last
        weights += checkpoint.tensors._replace(bound=table).nbytes(unpacked=unpacked)
    # What does not fit is planned all the same, so that it can be said how much is missing.
    taken = weights + draft_weights
    beside = () if draft is None else draft.spec.cached
    beside_cache = taken if taken < free else 0
    if config.ranks > 1:
        from .parallel.model import planned_cache

        ranks, shape = planned_cache(config, checkpoint.spec, context, rooms, beside_cache, device, beside)
    else:
        left = free - beside_cache
        ranks, shape = "", size_kv_cache(config, checkpoint.spec.cached, context, left, device, beside)
    both = replace(shape, layers=(*shape.layers, *beside))
    memory = MemoryPlan(
        model=checkpoint.name,
        quantization=checkpoint.tensors.label(),
        weight_bytes=weights,
        kv_bytes_per_token=both.bytes_per_token,
        kv_bytes=both.nbytes,
        blocks=shape.blocks,
        block_size=shape.block_size,
        context_length=context,
        free_bytes=free,
        notes=checkpoint.notes,
        draft="" if draft is None else draft.name,
        draft_weight_bytes=draft_weights,
        ranks=ranks,
        active_bytes=weights - int(experts * (1 - checkpoint.spec.share_of_experts)),
    )
    here, own = (workload_of(each, config, context) for each in (checkpoint, stored))
    words: tuple[Quantization, ...] = ("int8", "int4")
    fewer = {word: stored._replace(tensors=stored.tensors._replace(quantization=word)) for word in words}
    lighter = {word: workload_of(each, config, context) for word, each in fewer.items()}
    return ModelPlan(
        memory,
        here,
        own,
        {word: each for word, each in lighter.items() if each.weight_bytes < own.weight_bytes},
        None if draft is None else workload_of(draft, config, context),
    )


def _planned_draft(config: EngineConfig, nbytes: int, free: int) -> Checkpoint | None:
    """The draft model beside a model of so many bytes; None: there is none, or it would not be used."""
    from .loading.checkpoint import open_checkpoint
    from .speculative.pairing import leaves_room

    if isinstance(source := config.draft_source, (str, Path)):
        return open_checkpoint(source)
    paired = config.paired_draft if config.draft_model == "auto" else None
    try:
        return None if paired is None or not leaves_room(paired, nbytes, free) else open_checkpoint(paired)
    except EngineError:  # the engine goes on without it
        return None


def free_memory(config: EngineConfig | None = None) -> int:
    """Bytes that a model may take now, where an engine of this configuration would compute. EngineError."""
    from kernels.backends import free_bytes

    from .selection import select_backend

    try:
        selection = select_backend(config or EngineConfig(model=""))
        return free_bytes(selection.name, selection.settings)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error

"""What a model will take of the memory, from the headers of its files: nothing is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from .config import EngineConfig
from .loading.checkpoint import open_checkpoint
from .roofline import free_memory, plan_cache


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes in bytes. blocks: of the KV cache, block_size tokens each. quantization: of most weights."""

    model: str
    quantization: str
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    blocks: int
    block_size: int
    context_length: int
    free_bytes: int

    def conversations(self, tokens: int) -> int:
        """How many conversations of this many tokens the KV cache holds at once; each takes whole blocks."""
        return self.blocks // -(-tokens // self.block_size)


def plan_memory(config: EngineConfig) -> MemoryPlan:
    """The plan an engine of this configuration would follow. EngineError: model_invalid, out_of_memory."""
    assert not hasattr(config.model, "load"), "a plan is for a model with files"
    checkpoint = open_checkpoint(str(config.model), config.quantization)
    context = checkpoint.context_length(config.context_length)
    shape = plan_cache(config, checkpoint.spec, context)
    return MemoryPlan(
        model=checkpoint.name,
        quantization=checkpoint.quantization,
        weight_bytes=checkpoint.weight_bytes,
        kv_bytes_per_token=shape.bytes_per_token,
        kv_bytes=shape.nbytes,
        blocks=shape.blocks,
        block_size=shape.block_size,
        context_length=context,
        free_bytes=free_memory(),
    )

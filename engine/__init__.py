"""The inference engine: scheduling, paged KV cache, models, sampling and metrics. Knows no user interface."""

from .client import AsyncEngine, ModelInfo
from .config import EngineConfig
from .memory_plan import MemoryPlan, memory_plan
from .stream import ResponseStream
from .types import (
    ConversationRow,
    EngineError,
    EngineSnapshot,
    Event,
    Finished,
    FinishReason,
    Message,
    SamplingParams,
    TextDelta,
    Timings,
    TokenLogprob,
    Usage,
    as_dict,
)

__all__ = [
    "AsyncEngine",
    "ConversationRow",
    "EngineConfig",
    "EngineError",
    "EngineSnapshot",
    "Event",
    "FinishReason",
    "Finished",
    "MemoryPlan",
    "Message",
    "ModelInfo",
    "ResponseStream",
    "SamplingParams",
    "TextDelta",
    "Timings",
    "TokenLogprob",
    "Usage",
    "as_dict",
    "memory_plan",
]

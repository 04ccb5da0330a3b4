"""The inference engine: scheduling, paged KV cache, models, sampling and metrics. Knows no user interface.

The plain types come with the package; what computes is imported when it is first asked for, so that a program
which only needs `SamplingParams` or `Message` starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .config import DRAFT_WORDS, EngineConfig
from .sampling_params import SamplingParams
from .types import (
    ConversationRow,
    EngineError,
    EngineSnapshot,
    Event,
    Finished,
    FinishReason,
    Message,
    TextDelta,
    Timings,
    TokenLogprob,
    TopLogprob,
    Usage,
    as_dict,
)

if TYPE_CHECKING:
    from .bandwidth import Peak
    from .client import AsyncEngine
    from .grammar.source import check_constraint
    from .loading.description import Description, describe_model
    from .loading.folder import model_name
    from .memory_plan import MemoryPlan, ModelPlan, free_memory, plan_memory, plan_model
    from .named_templates import check_template, is_template, read_template, template_names
    from .protocol import Engine, ModelInfo
    from .reserve import reserve_memory
    from .selection import Gpus, Selection, list_gpus, select_backend
    from .stream import ResponseStream

_LAZY = {
    "AsyncEngine": "client",
    "Description": "loading.description",
    "Engine": "protocol",
    "Gpus": "selection",
    "MemoryPlan": "memory_plan",
    "ModelInfo": "protocol",
    "ModelPlan": "memory_plan",
    "Peak": "bandwidth",
    "ResponseStream": "stream",
    "Selection": "selection",
    "check_constraint": "grammar.source",
    "describe_model": "loading.description",
    "free_memory": "memory_plan",
    "list_gpus": "selection",
    "model_name": "loading.folder",
    "plan_memory": "memory_plan",
    "plan_model": "memory_plan",
    "reserve_memory": "reserve",
    "select_backend": "selection",
    "check_template": "named_templates",
    "is_template": "named_templates",
    "read_template": "named_templates",
    "template_names": "named_templates",
}
"""Public name -> the module it is in."""

__all__ = [
    "DRAFT_WORDS",
    "AsyncEngine",
    "ConversationRow",
    "Description",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineSnapshot",
    "Event",
    "FinishReason",
    "Finished",
    "Gpus",
    "MemoryPlan",
    "Message",
    "ModelInfo",
    "ModelPlan",
    "Peak",
    "ResponseStream",
    "SamplingParams",
    "Selection",
    "TextDelta",
    "Timings",
    "TokenLogprob",
    "TopLogprob",
    "Usage",
    "as_dict",
    "check_constraint",
    "check_template",
    "describe_model",
    "free_memory",
    "is_template",
    "list_gpus",
    "model_name",
    "plan_memory",
    "plan_model",
    "read_template",
    "reserve_memory",
    "select_backend",
    "template_names",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value

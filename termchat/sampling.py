"""Which sampling settings hold for a reply: those asked for, the user's, the registry's, the model's own.

What is asked for are options of the command line, and under them a conversation's own settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .config import Config, Setting, Source
from .resolved_model import ResolvedModel

if TYPE_CHECKING:
    from engine import SamplingParams

FALLBACK = {"temperature": 0.7, "top_p": 0.95}
"""Where neither registry nor model says anything."""


def resolve_sampling(
    flags: Mapping[str, Any],
    config: Mapping[str, Any],
    registry: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
) -> dict[str, Setting]:
    """The sampling settings of a request, key by key: flag over the user's config over the defaults.

    Defaults are the registry's, else those of the model's generation_config, else temperature 0.7, top_p
    0.95. A flag that is None was not given. Keys that nobody set are left out. Who sets temperature 0 asks
    for the model's own first choice: defaults belong to their own temperature and are not mixed into it.
    """
    flags = {key: value for key, value in flags.items() if value is not None}
    layers: list[tuple[Source, Mapping[str, Any]]] = [("config", config), ("flag", flags)]
    if flags.get("temperature", config.get("temperature")) != 0:
        defaults: tuple[Source, Mapping[str, Any]] = (
            ("registry", registry) if registry else ("model", model) if model else ("default", FALLBACK)
        )
        layers.insert(0, defaults)
    return {key: Setting(key, value, source) for source, values in layers for key, value in values.items()}


def sampling_params(
    flags: Mapping[str, Any], config: Config, model: ResolvedModel, defaults: Mapping[str, Any]
) -> SamplingParams:
    """A request's settings: flags over the user's settings over the defaults of registry or model.

    defaults: what the model's own files ask for. ValueError names field, value and range.
    """
    from engine import SamplingParams

    registry = model.entry.sampling if model.entry is not None else None
    settings = resolve_sampling(flags, config.sampling, registry, defaults)
    return SamplingParams(**{key: setting.value for key, setting in settings.items()})

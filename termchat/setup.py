"""The set-up of a run: the user's folders, settings and models; the engine's configuration out of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from engine import EngineConfig

from .config import Config
from .paths import Paths
from .registry import Registry
from .resolved_model import ResolvedModel


class Setup(NamedTuple):
    """The user's folders, settings and models."""

    paths: Paths
    config: Config
    registry: Registry

    @classmethod
    def load(cls) -> Self:
        """Read them. PathError: there is no home folder."""
        paths = Paths.default()
        return cls(paths, Config.load(paths.config_file), Registry.load(paths))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each part of a file that was ignored."""
        return self.config.warnings + self.registry.warnings

    @property
    def default_model(self) -> str:
        """Name or path of the model to use when none is asked for."""
        chosen = self.config.options["model"]
        return chosen if isinstance(chosen, str) else self.registry.default


def engine_config(model: ResolvedModel, config: Config, flags: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration: flags over the user's settings over the registry's.

    ValueError names field, value and range.
    """
    fields = {name: getattr(model.entry, name, None) for name in ("quantization", "template")}
    registry = {name: value for name, value in fields.items() if value is not None}
    return EngineConfig(model=model.path, **{**registry, **config.engine, **flags})

"""The set-up of a run: the user's folders, settings and models; the engine's configuration out of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from engine import DRAFT_WORDS, EngineConfig

from .config import Config
from .paths import Paths
from .registry import Registry
from .registry_errors import RegistryError, UnknownModelError
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


def engine_config(
    registry: Registry,
    model: ResolvedModel,
    config: Config,
    flags: Mapping[str, Any],
    *,
    one_model: bool = True,
) -> EngineConfig:
    """The engine's configuration: flags over the user's settings over the registry's.

    one_model: the flags are for this model alone. A draft model for whatever is loaded, of the settings, say,
    is left out where it does not fit. ValueError names field, value and range. UnknownModelError,
    NotDownloadedError: of a draft model.
    """
    entry = {name: getattr(model.entry, name, None) for name in ("quantization", "template")}
    values = {name: value for name, value in entry.items() if value is not None} | {**config.engine, **flags}
    draft = values.get("draft_model", "auto")
    if isinstance(draft, str) and draft not in DRAFT_WORDS:
        try:
            path = registry.resolve(draft).path
        except UnknownModelError as error:
            where = "--draft" if "draft_model" in flags else "engine.draft_model of the settings"
            raise UnknownModelError(f"the draft model, {where}: {error}") from error
        strict = one_model and "draft_model" in flags
        values |= {"draft_model": path} if strict else {"draft_model": "auto", "paired_draft": path}
    elif draft == "auto" and model.entry is not None and model.entry.draft is not None:
        with suppress(RegistryError):  # it is not here: nothing is downloaded that nobody asked for
            values["paired_draft"] = registry.resolve(model.entry.draft).path
    return EngineConfig(model=model.path, findings=registry.models.with_name("kernels"), **values)

"""Finding models and making engines, by the user's settings. What takes time is for a background thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...config import Config

if TYPE_CHECKING:
    from engine import Engine, EngineConfig, MemoryPlan
    from engine.data_sheets import Machine
    from engine.workload import Workload

    from ...registry import Registry
    from ...resolved_model import ResolvedModel


class Roof(NamedTuple):
    """What a model asks for, and this machine, None as long as that was not measured."""

    load: Workload
    machine: Machine | None


class Loader:
    """What all models of the application share. registry: None until `read` was called."""

    def __init__(
        self,
        config: Config,
        read_registry: Callable[[], Registry],
        flags: Mapping[str, Any] | None = None,
        *,
        engine_config: Callable[[ResolvedModel], EngineConfig] | None = None,
        plan: Callable[[EngineConfig], MemoryPlan] | None = None,
    ) -> None:
        """flags: engine options of the command line. engine_config, plan: for tests, instead of these."""
        self.config = config
        self.registry: Registry | None = None
        self._read_registry = read_registry
        self._flags = dict(flags or {})
        self._engine_config = engine_config
        self._plan = plan
        self._machine: Machine | None = None

    def read(self) -> None:
        """Read the registry. Blocks."""
        self.registry = self._read_registry()

    def resolve(self, name: str | None) -> ResolvedModel:
        """The model of a name or path (None: the user's default). UnknownModelError, NotDownloadedError."""
        assert self.registry is not None, "it was read"
        chosen = self.config.options["model"] if name is None else name
        return self.registry.resolve(chosen if isinstance(chosen, str) else None)

    def blamed(self, sentence: str) -> str:
        """What to add to a sentence about the engine: which of the user's settings it names."""
        return self.config.blamed(sentence, self._flags)

    def reference(self, name: str) -> str:
        """How to find the model of a name or path again, whether it is here or not. UnknownModelError."""
        from ...registry_errors import NotDownloadedError

        try:
            return self.resolve(name).reference
        except NotDownloadedError as error:
            return error.entry.name

    def make(self, model: ResolvedModel) -> Engine:
        """An engine that is not entered yet. Imports what computes, so it blocks."""
        from engine import AsyncEngine

        return AsyncEngine(self._config_of(model), chat=True)

    def plan(self, model: ResolvedModel) -> MemoryPlan:
        """What the model would take of the memory. Reads its files' headers. EngineError."""
        from engine import plan_memory

        return (self._plan or plan_memory)(self._config_of(model))

    def roof(self, model: ResolvedModel, *, measure: bool) -> Roof | None:
        """The model's roofline here; None for one without files. Blocks. EngineError.

        measure: how fast this machine computes, once for all models, some tenths of a second on all CPUs.
        """
        from engine import plan_model
        from engine.measured import this_machine

        config = self._config_of(model)
        if not isinstance(config.model, (str, Path)):
            return None
        load = plan_model(config).here
        if measure and self._machine is None:
            self._machine = this_machine(config, load.traffic.all_weight_bytes).machine
        return Roof(load, self._machine)

    def _config_of(self, model: ResolvedModel) -> EngineConfig:
        if self._engine_config is not None:
            return self._engine_config(model)
        from ...setup import engine_config

        assert self.registry is not None, "it was read"
        return engine_config(self.registry, model, self.config, self._flags, one_model=False)

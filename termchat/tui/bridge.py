"""The engine inside the application: brought here, loaded in the background, switched, closed.

The engine's package (numpy, tokenizers) is imported by the background thread, after the first frame.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..config import Config
from ..errors import UserError
from .background import in_background

if TYPE_CHECKING:
    from engine import AsyncEngine, EngineConfig, EngineSnapshot, SamplingParams

    from ..download import Progress
    from ..registry import Registry, ResolvedModel
    from ..registry_file import ModelEntry

log = logging.getLogger(__name__)

State = Literal["starting", "absent", "downloading", "loading", "ready", "failed", "closed"]

CHOOSE = "choose another model"
AGAIN = "⏎ goes on with it"


class EngineUnavailableError(UserError):
    """There is no engine to answer; says why and what to do."""


class _DownloadStoppedError(Exception):
    """Raised inside a download to end it."""


class EngineBridge:
    """The one engine of the application.

    state: starting (nothing is known yet), absent (the model is not on this machine), downloading, loading,
    ready, failed or closed. error, remedy: why it is absent or failed, and what can be done.
    entry: the registered model that is absent or downloading. progress: the download's latest event.
    loading: an engine is being loaded, which cannot be stopped half-way.
    """

    def __init__(
        self,
        config: Config,
        load_registry: Callable[[], Registry],
        changed: Callable[[], None],
        flags: Mapping[str, Any] | None = None,
        engine_config: Callable[[ResolvedModel], EngineConfig] | None = None,
        fetch: bool = False,
    ) -> None:
        """changed: called on the event loop when the state has changed. flags: engine options of the command.

        engine_config: instead of the user's settings, for tests. fetch: bring an absent model at once.
        """
        self.state: State = "starting"
        self.error = ""
        self.remedy = ""
        self.registry: Registry | None = None
        self.model: ResolvedModel | None = None
        self.entry: ModelEntry | None = None
        self.progress: Progress | None = None
        self.engine: AsyncEngine | None = None
        self.thinks_at_once = False
        self.load_seconds: float | None = None
        self._config = config
        self._load_registry = load_registry
        self._changed = changed
        self._flags = dict(flags or {})
        self._engine_config = engine_config
        self._fetch = fetch
        self.loading = False
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop_download = False

    def start(self, name: str | None = None) -> None:
        """Load a model by name or path (None: the user's default). What was loaded before is closed."""
        self._stop_download = True
        self._become("loading" if self.registry is not None else "starting")
        self._task = asyncio.create_task(self._start(name, self._task))

    def download(self) -> None:
        """Fetch the absent model, then load it."""
        if self.state == "absent" and self.entry is not None:
            self._task = asyncio.create_task(self._download(self.entry))

    def stop_download(self) -> None:
        """End a download; what has come is kept."""
        self._stop_download = True

    async def ready(self) -> AsyncEngine:
        """The engine, when it is loaded. EngineUnavailableError: it cannot be."""
        while True:
            await self._settled.wait()
            if self.state == "ready" and self.engine is not None:
                return self.engine
            if self.state in ("failed", "closed"):
                raise EngineUnavailableError(f"{self.error}; {self.remedy}" if self.remedy else self.error)
            await asyncio.sleep(0)

    def snapshot(self) -> EngineSnapshot | None:
        """The engine's own picture; None while there is no engine."""
        return self.engine.snapshot() if self.engine is not None and self.state == "ready" else None

    @property
    def reference(self) -> str:
        """How to find the loaded model again: its registered name, or its path."""
        if self.model is None:
            return ""
        return self.model.name if self.model.entry is not None else str(self.model.path.resolve())

    @property
    def context_length(self) -> int | None:
        """Most tokens of a conversation; None while no model is loaded."""
        ready = self.state == "ready" and self.engine is not None
        return self.engine.info.context_length if ready and self.engine is not None else None

    def sampling(self, own: Mapping[str, Any]) -> SamplingParams:
        """Settings of a request: a conversation's own over the user's over the model's. ValueError."""
        from ..session import sampling_params

        assert self.engine is not None, "the engine is ready"
        assert self.model is not None, "it has a model"
        return sampling_params(own, self._config, self.model, self.engine.info.defaults)

    def template_vars(self) -> Mapping[str, Any]:
        """Variables for the chat template of the loaded model."""
        from ..session import template_vars

        return template_vars(self.model) if self.model is not None else {}

    async def close(self) -> None:
        """End the engine; live replies end as aborted."""
        self._stop_download = True
        self.state, self.error = "closed", "the engine is closed"
        self._settled.set()
        if self.engine is not None:
            engine, self.engine = self.engine, None
            await engine.__aexit__(None, None, None)

    async def _start(self, name: str | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        self._stop_download = False
        if self.engine is not None:
            engine, self.engine = self.engine, None
            await engine.__aexit__(None, None, None)
        self.model = self.entry = self.progress = None
        try:
            if self.registry is None:
                self.registry = await in_background(self._load_registry)
            await self._load(name)
        except Exception as error:
            self._fail(error)

    async def _load(self, name: str | None) -> None:
        from ..registry import NotDownloadedError

        assert self.registry is not None, "the registry is read first"
        chosen = self._config.options["model"] if name is None else name
        try:
            self.model = self.registry.resolve(chosen if isinstance(chosen, str) else None)
        except NotDownloadedError as error:
            self.entry = error.entry
            self._become("absent", str(error))
            if self._fetch and self.registry.target(error.entry) is not None:
                self.download()
            return
        self._become("loading")
        started = time.perf_counter()
        model = self.model
        engine = await in_background(lambda: self._make_engine(model))
        self.loading = True
        try:
            await engine.__aenter__()
        finally:
            self.loading = False
        self.engine = engine
        from ..session import starts_thinking

        self.thinks_at_once = await starts_thinking(engine, self.template_vars())
        self.load_seconds = time.perf_counter() - started
        self._become("ready")

    def _make_engine(self, model: ResolvedModel) -> AsyncEngine:
        from engine import AsyncEngine

        from ..session import engine_config

        if self._engine_config is not None:
            return AsyncEngine(self._engine_config(model))
        return AsyncEngine(engine_config(model, self._config, self._flags))

    async def _download(self, entry: ModelEntry) -> None:
        from ..download import ensure

        registry = self.registry
        assert registry is not None, "an entry is known"

        def note(progress: Progress) -> None:
            if self._stop_download:
                raise _DownloadStoppedError
            self.progress = progress

        self._stop_download = False
        self.progress = None
        self._become("downloading")
        try:
            await in_background(lambda: ensure(registry, entry.name, note))
            await self._load(entry.name)
        except _DownloadStoppedError:
            self._become("absent", "the download was stopped; what has come is kept", AGAIN)
        except UserError as error:
            log.warning("%s", error)
            self._become("absent", str(error), AGAIN)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.warning("the engine cannot be loaded", exc_info=error)
        code = getattr(error, "code", "")
        remedy = CHOOSE
        if code == "out_of_memory":
            remedy = "choose a smaller model, or set engine.kv_memory in the settings"
        elif code == "model_invalid" and self.model is not None and self.model.entry is not None:
            name = self.model.entry.name
            remedy = f"{CHOOSE}, or delete it (termchat models rm {name}) and download it again"
        self._become("failed", str(error) or type(error).__name__, remedy)

    def _become(self, state: State, error: str = "", remedy: str = "") -> None:
        if self.state == "closed":
            return
        self.state, self.error, self.remedy = state, error, remedy
        if state in ("ready", "failed"):
            self._settled.set()
        else:
            self._settled.clear()
        self._changed()

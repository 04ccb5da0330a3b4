"""One model inside the application: found, downloaded, loaded in the background, unloaded.

The engine's package (numpy, tokenizers) is imported by the background thread, after the first frame.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from ...errors import UserError
from ...resolved_model import model_title
from ...thinking import ThinkingStyle
from ..background import in_background
from .fetching import Fetching
from .loader import Loader

if TYPE_CHECKING:
    from engine import Engine, EngineSnapshot, SamplingParams

    from ...download import Progress
    from ...model_entry import ModelEntry
    from ...resolved_model import ResolvedModel

log = logging.getLogger(__name__)

State = Literal[
    "starting", "absent", "downloading", "unloaded", "waiting", "loading", "ready", "failed", "closed"
]

CHOOSE = "choose another model"
AGAIN = "enter goes on with it"


class EngineUnavailableError(UserError):
    """There is no engine to answer; says why and what to do."""


class ModelSlot:
    """One model and its engine.

    state: starting (nothing is known yet), absent (the model is not on this machine), downloading, unloaded,
    waiting (for memory that another model has), loading, ready, failed or closed. error, remedy: why it is
    absent or failed, and what can be done; details: all that is known of why. entry: the registered model
    that is absent or downloading. fetching: the latest download. unchecked: nothing said what the
    download had to be. loading: an engine is being loaded, which cannot be stopped half-way.
    """

    def __init__(self, loader: Loader, changed: Callable[[], None], name: str | None = None) -> None:
        """changed: called on the event loop when the state has changed. name: None is the user's default."""
        self.name = name
        self.state: State = "starting"
        self.error = ""
        self.remedy = ""
        self.details = ""
        self.model: ResolvedModel | None = None
        self.entry: ModelEntry | None = None
        self.fetching: Fetching | None = None
        self.unchecked = False
        self.engine: Engine | None = None
        self.thinking = ThinkingStyle()
        self.load_seconds: float | None = None
        self.loading = False
        self._opening: Engine | None = None
        self.loader = loader
        self._changed = changed
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def reference(self) -> str:
        """How to find the model again: its registered name, or its path; "" while that is not known."""
        if self.model is not None:
            return self.model.reference
        return self.entry.name if self.entry is not None else self.name or ""

    @property
    def title(self) -> str:
        """What people call the model."""
        return self.model.title if self.model is not None else model_title(self.reference)

    @property
    def context_length(self) -> int | None:
        """Most tokens of a conversation; None while the model is not loaded."""
        return self.engine.info.context_length if self.engine is not None else None

    @property
    def progress(self) -> Progress | None:
        """The latest event of the download."""
        return self.fetching.progress if self.fetching is not None else None

    @property
    def downloaded_share(self) -> float | None:
        """How much of a download is here; None while that is not known."""
        progress = self.progress
        return progress.done / progress.total if progress is not None and progress.total else None

    @property
    def loaded_share(self) -> float | None:
        """How much of the model is loaded; None while it is not being loaded, or has not begun."""
        return (self._opening.snapshot().loaded or None) if self._opening is not None else None

    @property
    def preparing(self) -> str:
        """What takes long before the model is loaded; "" if nothing does."""
        return self._opening.snapshot().loading if self._opening is not None else ""

    @property
    def idle(self) -> bool:
        """Whether it answers nothing."""
        snapshot = self.snapshot()
        return snapshot is None or not (snapshot.running or snapshot.waiting)

    def snapshot(self) -> EngineSnapshot | None:
        """The engine's own picture; None while there is no engine."""
        return self.engine.snapshot() if self.engine is not None else None

    def look(self) -> None:
        """Find out whether the model is on this machine. The registry has been read."""
        from ...registry_errors import NotDownloadedError

        try:
            self.model = self.loader.resolve(self.name)
        except NotDownloadedError as error:
            self.entry = error.entry
            self._become("absent", str(error))
        except UserError as error:
            self.fail(error)
        else:
            self._become("unloaded")

    def load(self, first: Coroutine[Any, Any, None] | None = None) -> None:
        """Load the model if it is here and not loaded. first: what to wait for before."""
        if self.state in ("unloaded", "failed") and self.model is not None:
            self._become("waiting" if first is not None else "loading")
            self._task = asyncio.create_task(self._run(self._load(self.model, first)))
        elif first is not None:
            first.close()

    def download(self, *, unseen: bool = False) -> None:
        """Fetch the absent model, then load it.

        A model of the Hub of which nothing is known but its name is looked up first: then its size and
        licence are shown, and the next call fetches it. unseen: fetch it whatever it turns out to be.
        """
        if self.state == "absent" and self.entry is not None:
            assert self.loader.registry is not None, "an entry is known"
            self.fetching = Fetching(self.loader.registry, self.entry)
            self._become("downloading")
            looks = self.entry.is_open and not unseen
            job = (self._look_up if looks else self._fetch)(self.fetching)
            self._task = asyncio.create_task(self._run(job))

    def stop_download(self) -> None:
        """End a download at once; what has come is kept."""
        if self.state == "downloading" and self.fetching is not None:
            self.fetching.stop()
            self._become("absent", "the download was stopped; what has come is kept", AGAIN)

    async def ready(self) -> Engine:
        """The engine, when it is loaded. EngineUnavailableError: it cannot be."""
        while True:
            await self._settled.wait()
            if self.engine is not None:
                return self.engine
            if self.state == "unloaded":
                raise EngineUnavailableError(f"{self.title} was unloaded; send again to load it")
            if self.state in ("failed", "closed"):
                raise EngineUnavailableError(f"{self.error}; {self.remedy}" if self.remedy else self.error)
            await asyncio.sleep(0)

    async def unload(self) -> None:
        """Free its memory. Live replies end as aborted."""
        if self.engine is not None:
            self._become("unloaded")
            await self._leave()

    async def close(self) -> None:
        """End the engine for good; live replies end as aborted."""
        if self.fetching is not None:
            self.fetching.stop()
        self._become("closed", "the engine is closed")
        await self._leave()

    def sampling(self, own: Mapping[str, Any]) -> SamplingParams:
        """Settings of a request: a conversation's own over the user's over the model's. ValueError."""
        from ...sampling import sampling_params

        assert self.engine is not None, "the engine is ready"
        assert self.model is not None, "it has a model"
        return sampling_params(own, self.loader.config, self.model, self.engine.info.defaults)

    def template_vars(self) -> Mapping[str, Any]:
        """Variables for the model's chat template."""
        return self.model.template_vars if self.model is not None else {}

    def fail(self, error: Exception, mend: str | None = None) -> None:
        """It cannot be used, for this reason. mend: what would help."""
        log.warning("a model cannot be used", exc_info=error)
        code = getattr(error, "code", "")
        remedy = CHOOSE
        if code == "out_of_memory":
            remedy = "choose a smaller model, or set engine.kv_memory in the settings"
        elif code == "template":
            both = "--template NAME|FILE makes it one, --raw goes on with a text by it"
            remedy = f"it is no chat model, perhaps: {both}; {CHOOSE}"
        elif mend is not None:
            remedy = f"{mend}; or {CHOOSE}"
        reason = str(error) or type(error).__name__
        self._become("failed", reason + self.loader.blamed(reason), remedy)

    async def _leave(self) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.__aexit__(None, None, None)

    async def _run(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except Exception as error:
            self.fail(error, await self._mend(error))

    async def _mend(self, error: Exception) -> str | None:
        registry, model = self.loader.registry, self.model
        if getattr(error, "code", "") != "model_invalid" or registry is None or model is None:
            return None
        from ...download import mend

        return await in_background(lambda: mend(registry, model))

    async def _load(self, model: ResolvedModel, first: Coroutine[Any, Any, None] | None = None) -> None:
        from ...thinking import thinking_style

        if first is not None:
            await first
            self._become("loading")
        started = time.perf_counter()
        engine = await in_background(lambda: self.loader.make(model))
        async with AsyncExitStack() as stack:  # whatever happens before it is ours leaves it again
            self.loading, self._opening = True, engine
            try:
                await stack.enter_async_context(engine)
            finally:
                self.loading, self._opening = False, None
            thinking = await thinking_style(engine, self.template_vars())
            if self.state == "closed":
                return
            stack.pop_all()
        self.thinking = thinking
        self.load_seconds = time.perf_counter() - started
        self.engine = engine
        self._become("ready")

    async def _look_up(self, fetching: Fetching) -> None:
        found = await fetching.look_up()
        if fetching.failure is not None:
            self._not_fetched(fetching.failure)
        elif found is not None and not fetching.stopped:
            self.entry = found
            self._become("absent")

    async def _fetch(self, fetching: Fetching) -> None:
        from ...download import origin_of

        path = await fetching.fetch()
        if fetching.failure is not None:
            self._not_fetched(fetching.failure)
        if path is None or (fetching.stopped and self.state != "absent"):  # closed, or downloaded anew by now
            return
        self.model = self.loader.resolve(self.name)
        if fetching.stopped:  # it had all come already
            self._become("unloaded")
            return
        origin = origin_of(path)
        self.unchecked = origin is not None and not origin.checked
        self._become("loading")
        await self._load(self.model)

    def _not_fetched(self, error: UserError) -> None:
        from ...download import DownloadError

        self._become("absent", error.summary if isinstance(error, DownloadError) else str(error), AGAIN)
        self.details = str(error)

    def _become(self, state: State, error: str = "", remedy: str = "") -> None:
        if self.state == "closed":
            return
        self.state, self.error, self.remedy, self.details = state, error, remedy, error
        if state in ("ready", "unloaded", "failed", "closed"):
            self._settled.set()
        else:
            self._settled.clear()
        self._changed()

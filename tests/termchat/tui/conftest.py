"""A scripted engine behind the real model slots, store and conversations; no widgets."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig, MemoryPlan
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from termchat.config import Config
from termchat.model_entry import LocalSource, ModelEntry
from termchat.registry import Registry
from termchat.resolved_model import ResolvedModel
from termchat.tui.conversations.collection import Conversations
from termchat.tui.conversations.conversation import Conversation
from termchat.tui.conversations.live_reply import LiveReply
from termchat.tui.conversations.store_thread import StoreThread
from termchat.tui.conversations.streaming import Streaming
from termchat.tui.conversations.turns import Turns
from termchat.tui.engines.loader import Loader
from termchat.tui.engines.monitor import Monitor
from termchat.tui.engines.pool import EnginePool
from waiting import HANG_SECONDS, until

_of_file = functools.cache(load_tokenizer)


def tokenizer_at(path: str | Path) -> Any:
    """That of a GGUF file is read once; what lies in a folder a test may write anew."""
    return _of_file(path) if Path(path).suffix == ".gguf" else load_tokenizer(path)


@pytest.fixture
def tokenizer(default_model: Path) -> Any:
    return tokenizer_at(default_model)


@pytest.fixture(autouse=True)
def one_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted models share the default model's tokenizer: reading it takes longer than most tests do."""
    monkeypatch.setattr("engine.testing.load_tokenizer", tokenizer_at)


@pytest.fixture(autouse=True)
def no_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's user has in other programs is no part of a test."""
    monkeypatch.setattr("termchat.tui.commands.models.everywhere", lambda: iter(()))


class Paced(ScriptedModel):
    """A step takes its time, and lasts until the test's loop has had its turn: what a test does in the middle
    of a reply is done there, however slow the machine is.
    """

    loop: asyncio.AbstractEventLoop

    def wait(self) -> None:
        super().wait()
        turned = threading.Event()
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(turned.set)
            turned.wait(1)  # no longer: it may stand still until the step is done


@pytest.fixture
def script(default_model: Path, tokenizer: Any) -> Callable[..., ScriptedModel]:
    """A model that says these texts, in order of the requests. step: seconds of each, see `Paced`."""

    def make(*texts: str, step: float = 0.0, context: int = 2048) -> ScriptedModel:
        outputs = [tokenizer.encode(text) for text in texts]
        if not step:
            return ScriptedModel(outputs, default_model, context_length=context)
        model = Paced(outputs, default_model, step_seconds=step, context_length=context)
        model.loop = asyncio.get_running_loop()
        return model

    return make


class Recorder:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.grown: list[str] = []
        self.notices: list[str] = []
        self.lasting = ""
        self.ended = 0

    def conversations_changed(self) -> None: ...

    def conversation_changed(self, chat: Conversation) -> None: ...

    def reply_grew(self, chat: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        self.grown.append(answer)

    def reply_ended(self, chat: Conversation) -> None:
        self.ended += 1

    def tell_lasting(self, text: str) -> None:
        self.lasting = text

    def notify_user(self, text: str, *, error: bool = False) -> None:
        self.notices.append(text)


class Models:
    """Scripted models: one, or several by name; and a memory that is not the machine's.

    weights: bytes that each takes; memory: bytes in all. Caches take nothing.
    """

    def __init__(
        self, path: Path, folder: Path, models: ScriptedModel | Mapping[str, ScriptedModel] | None
    ) -> None:
        self.path, self.models = path, models
        self.weights, self.memory = 100, 1000
        self.loaded: Callable[[], int] = lambda: 0
        entries = {}
        if isinstance(models, Mapping):
            for name in models:
                entries[name] = ModelEntry(name, (LocalSource(path),), f"the model {name}", "MIT", None)
        self.registry = Registry(entries, next(iter(entries), str(path)), folder)

    def config(self, resolved: ResolvedModel) -> EngineConfig:
        model = self.models.get(resolved.name) if isinstance(self.models, Mapping) else self.models
        return EngineConfig(model=model if model is not None else resolved.path)

    def plan(self, config: EngineConfig) -> MemoryPlan:
        free = self.memory - self.weights * self.loaded()
        return MemoryPlan("a model", "int4", self.weights, 0, 0, 10, 32, 2048, free)


class Stage:
    """What a test of the conversations has in hand."""

    until = staticmethod(until)

    def __init__(self, models: Models, tmp_path: Path) -> None:
        self.database = tmp_path / "termchat.db"
        self.listener = Recorder()
        self.models = models
        loader = Loader(
            Config.load(tmp_path / "config.toml"),
            lambda: models.registry,
            engine_config=models.config,
            plan=models.plan,
        )
        self.engines = EnginePool(loader, lambda: None)
        models.loaded = lambda: len(self.engines.loaded)
        self.store = StoreThread(self.database, lambda error: self.listener.notices.append(str(error)))
        self.conversations = Conversations(self.store, self.listener)
        streaming = Streaming(self.conversations, self.store, self.listener)
        self.turns = Turns(self.engines, self.conversations, self.store, streaming, self.listener)
        self.monitor = Monitor(self.engines, self.conversations, streaming)

    async def ask(self, text: str, chat: Conversation | None = None) -> Conversation:
        """Send a text and wait for the reply."""
        chat = chat or self.conversations.new()
        self.turns.submit(chat, text)
        await until(lambda: not chat.busy)
        return chat


@pytest.fixture
def stage(default_model: Path, tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def open_stage(model: Any, *, start: bool = True) -> AsyncIterator[Stage]:
        stage = Stage(Models(default_model, tmp_path, model), tmp_path)
        await stage.store.open()
        await stage.conversations.load()
        if start:
            await stage.engines.start(None)
        try:
            yield stage
        finally:
            await stage.turns.close()
            await stage.engines.close()
            stage.store.close()

    return open_stage


PATIENCE = (
    "app.SAVING_SECONDS",
    "commands.stopping.AGAIN_SECONDS",
    "terminal.typeahead.LONGEST_SECONDS",
    "widgets.completing.LISTING_SECONDS",
    "widgets.notices.ERROR_SECONDS",
    "widgets.notices.SECONDS",
)
"""Times of the interface within which a busy machine may not get to what a test waits for."""


@pytest.fixture
def open_app(default_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The application on a terminal of a size, with a scripted engine."""
    from termchat.paths import Paths
    from termchat.tui.app import TermchatApp
    from termchat.tui.start import Options

    monkeypatch.setattr("termchat.tui.screens.main.TICK_SECONDS", 0.05)  # what is waited for is there sooner
    for name in PATIENCE:
        monkeypatch.setattr(f"termchat.tui.{name}", HANG_SECONDS)

    @asynccontextmanager
    async def start(
        model: Any,
        /,
        size: tuple[int, int] = (120, 36),
        config: str = "",
        registry: Registry | None = None,
        early: bool = False,
        **options: Any,
    ) -> AsyncIterator[Any]:
        paths = Paths(*(tmp_path / name for name in ("config", "data", "cache", "state")))
        paths.config.mkdir(exist_ok=True)
        still = "" if "reduced_motion" in config else "reduced_motion = true\n"
        paths.config_file.write_text(f"[ui]\n{still}{config}", encoding="utf-8")
        models = Models(default_model, tmp_path, model)
        app = TermchatApp(
            paths,
            Config.load(paths.config_file),
            Options(**options),
            read_registry=lambda: registry or models.registry,
            engine_config=models.config,
            plan=models.plan,
        )
        models.loaded = lambda: len(app.engines.loaded)
        async with app.run_test(size=size, notifications=True) as pilot:
            if not early:
                await until(lambda: app.engines.default.state != "starting")
            if model is not None:
                await until(lambda: app.engines.default.state == "ready")
            try:
                yield Driver(app, pilot, models)
            finally:
                await app.action_quit()
                app.store.close()

    return start


class Driver:
    """Types into the application and reads its screen."""

    until = staticmethod(until)

    def __init__(self, app: Any, pilot: Any, models: Models) -> None:
        self.app = app
        self.pilot = pilot
        self.models = models

    @property
    def main(self) -> Any:
        return self.app._main

    @property
    def conversation(self) -> Conversation:
        return self.app.conversations.shown

    @property
    def screen(self) -> str:
        """What is on the screen, row by row."""
        width, height = self.app.size
        rows = self.app.screen._compositor.render_strips()
        return "\n".join(row.text[:width].rstrip() for row in rows[:height])

    async def say(self, text: str, *, wait: bool = True) -> None:
        """Type a text and send it; wait until the replies are there."""
        self.main.prompt.load(text)
        await self.press("enter")
        await until(lambda: self.main.prompt.text != text)
        if wait:
            await self.settle()

    async def press(self, *keys: str) -> None:
        """Press keys, each when all that the one before it brought about is done.

        Unlike the pilot it does not wait until the processor has nothing to do.
        """
        for key in keys:
            self.type_ahead(key)
            await self.typed()

    def type_ahead(self, *keys: str) -> None:
        """Press keys before the application has looked at the first of them."""
        from textual.events import Key

        for key in keys:
            event = Key(key, key if len(key) == 1 else None)
            event.set_sender(self.app)
            self.app._driver.send_message(event)

    async def typed(self) -> None:
        """Wait until everything that was typed is done."""
        from textual.events import Callback

        passed = asyncio.Event()
        self.app._driver.send_message(Callback(passed.set))  # behind the keys
        await until(passed.is_set)
        await until(lambda: self.app.typeahead.idle)

    async def settle(self) -> None:
        """Wait until nothing is sent, carried out or answered any more, and it is drawn."""

        def at_rest() -> bool:
            asking = len(self.app.screen_stack) > 2  # a dialog is open, and a command waits for it
            working = any(worker.is_running for worker in self.app.workers) and not asking
            return not working and not any(chat.busy for chat in self.app.conversations.all)

        await until(at_rest)
        ticks = self.main._ticks
        await until(lambda: self.main._ticks > ticks + 1 or not self.main.is_running)
        await self.pilot.pause(0)

    async def shows(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        try:
            await until(lambda: all(text in self.screen for text in texts), longest=0.05)
        except AssertionError as error:
            raise AssertionError(f"{texts} not on the screen:\n{self.screen}") from error

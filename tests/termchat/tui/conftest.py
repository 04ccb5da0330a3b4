"""A scripted engine behind the real bridge, store and controller; no widgets."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from termchat.config import Config
from termchat.registry import Registry
from termchat.tui.bridge import EngineBridge
from termchat.tui.chat import Chat, LiveReply
from termchat.tui.controller import Controller
from termchat.tui.history import History


@pytest.fixture(scope="session")
def tokenizer(default_model: Path) -> Any:
    return load_tokenizer(default_model)


@pytest.fixture
def script(default_model: Path, tokenizer: Any) -> Callable[..., ScriptedModel]:
    """A model that says these texts, in order of the requests."""

    def make(*texts: str, step: float = 0.0, context: int = 2048) -> ScriptedModel:
        outputs = [tokenizer.encode(text) for text in texts]
        return ScriptedModel(outputs, default_model, step_seconds=step, context_length=context)

    return make


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until a condition holds; fail if it does not within a time that only a hang needs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)


class Recorder:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.grown: list[str] = []
        self.notices: list[str] = []
        self.ended = 0

    def chats_changed(self) -> None: ...

    def chat_changed(self, chat: Chat) -> None: ...

    def reply_grew(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        self.grown.append(answer)

    def reply_ended(self, chat: Chat) -> None:
        self.ended += 1

    def notify_user(self, text: str, *, error: bool = False) -> None:
        self.notices.append(text)


class Stage:
    """What a test of the controller has in hand."""

    until = staticmethod(until)

    def __init__(self, model: ScriptedModel | None, tokenizer: Path, tmp_path: Path) -> None:
        self.database = tmp_path / "termchat.db"
        self.listener = Recorder()
        config = Config.load(tmp_path / "config.toml")
        self.bridge = EngineBridge(
            config,
            lambda: Registry({}, str(tokenizer), tmp_path),
            lambda: None,
            engine_config=lambda resolved: EngineConfig(model=model if model is not None else resolved.path),
        )
        self.history = History(self.database, self.listener.notices.append)
        self.controller = Controller(self.bridge, self.history, self.listener)

    async def ask(self, text: str, chat: Chat | None = None) -> Chat:
        """Send a text and wait for the reply."""
        chat = chat or self.controller.new_chat()
        self.controller.submit(chat, text)
        await until(lambda: not chat.busy)
        return chat


@pytest.fixture
def stage(default_model: Path, tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def open_stage(model: ScriptedModel, *, start: bool = True) -> AsyncIterator[Stage]:
        stage = Stage(model, default_model, tmp_path)
        await stage.history.open()
        await stage.controller.load()
        if start:
            stage.bridge.start()
        try:
            yield stage
        finally:
            await stage.controller.close()
            await stage.bridge.close()
            stage.history.close()

    return open_stage


@pytest.fixture
def open_app(default_model: Path, tmp_path: Path) -> Callable[..., Any]:
    """The application on a terminal of a size, with a scripted engine."""
    from termchat.paths import Paths
    from termchat.tui.app import Options, TermchatApp

    @asynccontextmanager
    async def start(
        model: ScriptedModel | None,
        size: tuple[int, int] = (120, 36),
        config: str = "",
        registry: Registry | None = None,
        early: bool = False,
        **options: Any,
    ) -> AsyncIterator[Any]:
        paths = Paths(*(tmp_path / name for name in ("config", "data", "cache", "state")))
        paths.config.mkdir(exist_ok=True)
        paths.config_file.write_text("[ui]\nreduced_motion = true\n" + config, encoding="utf-8")
        known = registry or Registry({}, str(default_model), tmp_path)
        app = TermchatApp(
            paths,
            Config.load(paths.config_file),
            Options(**options),
            load_registry=lambda: known,
            engine_config=lambda resolved: EngineConfig(model=model if model is not None else resolved.path),
        )
        async with app.run_test(size=size, notifications=True) as pilot:
            if not early:
                await until(lambda: app.bridge.state != "starting")
            if model is not None:
                await until(lambda: app.bridge.state == "ready")
            try:
                yield Driver(app, pilot)
            finally:
                await app.action_quit()
                app.history.close()

    return start


class Driver:
    """Types into the application and reads its screen."""

    until = staticmethod(until)

    def __init__(self, app: Any, pilot: Any) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def main(self) -> Any:
        return self.app._main

    @property
    def chat(self) -> Chat:
        return self.app.controller.shown

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
        """Press keys; unlike the pilot it does not wait until the processor has nothing to do."""
        from textual.events import Key

        for key in keys:
            event = Key(key, key if len(key) == 1 else None)
            event.set_sender(self.app)
            self.app._driver.send_message(event)
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Wait until what was entered is taken in, nothing is answered any more, and it is drawn."""

        def quiet() -> bool:
            asked = len(self.app.screen_stack) == 2 and any(not work.is_finished for work in self.app.workers)
            return not asked and not any(chat.busy for chat in self.app.controller.chats)

        await until(quiet)
        await self.pilot.pause(0.15)

    async def shows(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        try:
            await until(lambda: all(text in self.screen for text in texts), 10)
        except AssertionError as error:
            raise AssertionError(f"{texts} not on the screen:\n{self.screen}") from error

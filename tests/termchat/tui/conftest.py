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

"""The program in this process: its standard streams are files, its model a script, its folders its own."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import EngineConfig
from engine.testing import ScriptedModel
from engine.tokenization import Tokenizer, load_tokenizer
from termchat.cli.console import Console
from termchat.cli.main import run
from termchat.cli.oneshot import Request
from termchat.cli.output import Messages, Output
from termchat.cli.signals import HANDLED
from waiting import HANG_SECONDS


@dataclass(frozen=True)
class Outcome:
    """What a run left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of this test's own; nothing is downloaded and no user's file is touched."""
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


@pytest.fixture
def linked_model(home: Path, default_model: Path) -> str:
    """The default model under its name, in the test's own folders."""
    folder = home / "cache" / "termchat" / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / default_model.name).symlink_to(default_model)
    return "smollm2-135m"


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Take the program's signal handlers off again."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def termchat() -> Callable[..., Outcome]:
    """Run the program: `termchat("models", "list", stdin=b"...")`. stdin None is /dev/null."""

    def call(*arguments: str, stdin: bytes | None = None) -> Outcome:
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin or b"")
            given.seek(0)
            source = given.fileno() if stdin is not None else os.open(os.devnull, os.O_RDONLY)
            console = Console(Output(out.fileno()), Messages(err.fileno()), stdin=source)
            code = run(arguments, console)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
            if stdin is None:
                os.close(source)
            return Outcome(code, *texts)

    return call


@pytest.fixture(scope="session")
def tokenizer(default_model: Path) -> Tokenizer:
    """The default model's tokenizer, read once."""
    return load_tokenizer(default_model)


@pytest.fixture
def scripted(
    monkeypatch: pytest.MonkeyPatch, default_model: Path, linked_model: str, tokenizer: Tokenizer
) -> Callable[..., list[list[int]]]:
    """Replace the model by a script: request i is answered by replies[i], a text or token ids."""
    monkeypatch.setattr("engine.testing.load_tokenizer", lambda path: tokenizer)
    # A busy machine takes longer to load even this, of which nothing is to be said on the terminal.
    monkeypatch.setattr("termchat.cli.serving.PATIENCE_SECONDS", HANG_SECONDS)

    def install(
        *replies: str | Sequence[int],
        step_seconds: float = 0.0,
        context: int = 8192,
        blocks: int | None = None,
        template: str | None = None,
    ) -> list[list[int]]:
        ids = [tokenizer.encode(reply) if isinstance(reply, str) else list(reply) for reply in replies]
        model = ScriptedModel(ids, default_model, context_length=context, step_seconds=step_seconds)
        config = EngineConfig(model=model, kv_blocks=blocks, template=template)
        monkeypatch.setattr("termchat.cli.serving.engine_config", lambda *_: config)
        return ids

    return install


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Catch what would be answered."""
    seen: list[Request] = []

    def answer(console: Console, request: Request) -> int:
        seen.append(request)
        return 0

    monkeypatch.setattr("termchat.cli.oneshot.answer", answer)
    return seen

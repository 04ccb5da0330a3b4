"""Models in the interface: downloads that hang, models that fail, files, and the list of them all."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncEngine, EngineError
from termchat.download import DownloadError, Progress
from termchat.download.errors import NoNetworkError
from termchat.elsewhere.found import Found
from termchat.hub.kept import write_note
from termchat.hub.listing import HubFile
from termchat.model_entry import HuggingFaceSource, LocalSource, ModelEntry
from termchat.registry import Registry


@pytest.fixture
def absent(tmp_path: Path) -> Registry:
    entry = ModelEntry("small", (HuggingFaceSource("a/b", "m.gguf"),), "a model", "MIT", 98_362_432)
    return Registry({"small": entry}, "small", tmp_path / "models")


class Hanging:
    """A download that hangs until its callback raises, or it is let go. ended: how many have."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.go = threading.Event()

    def __call__(self, registry: Registry, name: str, progress: Any) -> Path:
        self.begun += 1
        try:
            while not self.go.wait(0.02):
                progress(Progress("resolve", note="no answer for 7 s"))
        finally:
            self.ended += 1
        raise DownloadError("let go")


async def test_esc_ends_a_download_that_hangs_at_once(
    open_app: Any, absent: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    monkeypatch.setattr("termchat.download.ensure", hanging)
    async with open_app(None, registry=absent) as d:
        await d.shows("enter download")
        await d.press("enter")
        await d.shows("no answer for 7 s")
        slot = d.app.engines.default
        slot.stop_download()
        assert slot.state == "absent"  # before its thread has noticed
        slot.download()
        await d.until(lambda: hanging.ended == 1 and hanging.begun == 2)
        assert slot.state == "downloading"  # the first one's end says nothing of the second
        await d.press("escape")
        await d.shows("the download was stopped; what has come is kept", "enter tries again")
        await d.until(lambda: hanging.ended == 2)
        assert slot.state == "absent"


async def test_what_ends_late_does_not_undo_a_stop(
    open_app: Any, absent: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, ended = threading.Event(), threading.Event()

    def deaf(registry: Registry, name: str, progress: Any) -> Path:
        go.wait(60)
        ended.set()
        raise DownloadError("too late")

    monkeypatch.setattr("termchat.download.ensure", deaf)
    async with open_app(None, registry=absent) as d:
        await d.press("enter")
        await d.until(lambda: d.app.engines.default.state == "downloading")
        await d.press("escape")
        go.set()
        await d.until(ended.is_set)
        await d.pilot.pause(0.1)
        assert "was stopped" in d.app.engines.default.error


async def test_no_network_is_short_and_the_details_are_there_on_demand(
    open_app: Any, absent: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(*_: Any) -> Path:
        raise NoNetworkError(["PyPI", "Hugging Face"], ["pypi.org: no [answer]", "huggingface.co: no answer"])

    monkeypatch.setattr("termchat.download.ensure", ensure)
    async with open_app(None, registry=absent) as d:
        await d.say("hello", wait=False)
        await d.shows("no network (tried PyPI, Hugging Face)", "enter tries again", "F6 a file you have")
        assert "pypi.org" not in d.screen
        assert "enter download" in d.screen.splitlines()[-1]  # Enter does it, though a message waits
        await d.say("/why", wait=False)
        await d.shows("pypi.org: no [answer];", "huggingface.co: no answer")
        await d.press("escape")


async def test_a_model_that_cannot_chat_leaves_the_memory_and_can_be_tried_again(
    stage: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[AsyncEngine] = []
    leave = AsyncEngine.__aexit__

    async def noted(engine: AsyncEngine, *details: Any) -> None:
        left.append(engine)
        await leave(engine, *details)

    async def no_template(*_: Any) -> Any:
        raise EngineError("template", "the model has no chat template")

    monkeypatch.setattr(AsyncEngine, "__aexit__", noted)
    async with stage({"small": script("fine")}, start=False) as s:
        with monkeypatch.context() as patch:
            patch.setattr("termchat.thinking.thinking_style", no_template)
            await s.engines.start(None)
            slot = s.engines.default
            await s.until(lambda: slot.state == "failed")
        assert len(left) == 1
        assert slot.engine is None
        assert "no chat model" in slot.remedy
        assert "--template NAME|FILE" in slot.remedy
        assert "--raw" in slot.remedy
        slot.load()
        await s.until(lambda: slot.state == "ready")
        assert s.engines.loaded == [slot]


async def test_the_list_has_loaded_files_and_can_unload(
    open_app: Any, script: Any, tmp_path: Path, default_model: Path
) -> None:
    own = tmp_path / "own.gguf"
    own.symlink_to(default_model)
    near = ModelEntry("near", (LocalSource(default_model),))
    registry = Registry({"near": near}, "near", tmp_path / "models")
    models = {"near": script("Near."), "own.gguf": script("Own.")}
    async with open_app(models, registry=registry, size=(120, 40)) as d:
        await d.say(f"/model {own}")
        await d.until(lambda: [slot.title for slot in d.app.engines.loaded] == ["near", "own.gguf"])
        await d.press("f6")
        await d.shows("● own.gguf", "a file of yours", "● near", "✗ unload near", "✗ unload own.gguf")
        await d.press(*"unload")
        await d.until(lambda: "● near" not in d.screen)
        await d.press("enter")
        await d.until(lambda: [slot.title for slot in d.app.engines.loaded] == ["own.gguf"])
        await d.shows("near is unloaded")
        await d.press("f6")
        await d.shows("✓ near", "● own.gguf")
        await d.press("escape")


async def test_going_on_with_an_old_chat_leaves_the_default_as_it_is(stage: Any, script: Any) -> None:
    async with stage({"small": script("s"), "large": script("l")}, start=False) as s:
        chat = s.conversations.new()
        await s.conversations.set_model(chat, "large")
        await s.engines.start(None, first=chat.model)
        await s.until(lambda: [slot.title for slot in s.engines.loaded] == ["large"])
        assert s.engines.default.reference == "small"
        assert (await s.ask("hello", chat)).model == "large"
        new = await s.ask("hello")
        assert new.model == "small"


async def test_a_model_that_could_not_be_checked_is_told(
    open_app: Any, absent: Registry, monkeypatch: pytest.MonkeyPatch, default_model: Path, script: Any
) -> None:
    from termchat.download.check import remember

    def ensure(registry: Registry, name: str, progress: Any) -> Path:
        target = registry.target(registry.entry(name))
        assert target is not None
        target.parent.mkdir(parents=True)
        target.symlink_to(default_model)
        remember(target, "ab" * 32, "somewhere", checked=False)
        return target

    monkeypatch.setattr("termchat.download.ensure", ensure)
    async with open_app(None, registry=absent) as d:
        d.models.models = script("Here.")
        await d.press("enter")
        await d.shows("small is ready", "could not be checked")


async def test_N010_a_damaged_model_says_how_to_mend_it(stage: Any, script: Any, tmp_path: Path) -> None:
    source = HuggingFaceSource("a/b", "m.gguf")
    entry = ModelEntry("small", (source,), size=9, sha256="ab" * 32)
    async with stage({"small": script("x")}, start=False) as s:
        s.models.registry = Registry({"small": entry}, "small", tmp_path / "models")
        file = s.models.registry.target(entry)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"GGUFwrong")
        s.models.models = None  # the file itself is opened
        await s.engines.start(None)
        slot = s.engines.default
        await s.until(lambda: slot.state == "failed")
        assert slot.remedy.startswith("the file is damaged: termchat models pull small brings it again; or")


async def test_a_model_of_the_hub_is_looked_up_then_fetched_and_esc_ends_either(
    open_app: Any, absent: Registry, monkeypatch: pytest.MonkeyPatch, default_model: Path, script: Any
) -> None:
    calls: list[str] = []
    hang = threading.Event()

    def look_up(registry: Registry, name: str, meter: Any) -> ModelEntry:
        calls.append(f"look up {name}")
        while not hang.wait(0.02):
            meter.beat("no answer for 7 s")
        source = HuggingFaceSource("o/r", "m-Q4_0.gguf", "0" * 40)
        files = (HubFile("m-Q4_0.gguf", 1_500_000_000, "ab" * 32),)
        return ModelEntry("hf:o/r:Q4_0", (source,), licence="MIT", size=1_500_000_000, files=files)

    def ensure(registry: Registry, wanted: ModelEntry, progress: Any) -> Path:
        calls.append(f"fetch {wanted.name}")
        target, folder = registry.target(wanted), registry.folder_of(wanted)
        assert target is not None
        assert folder is not None
        folder.mkdir(parents=True)
        target.symlink_to(default_model)
        size = default_model.stat().st_size
        write_note(folder, dataclasses.replace(wanted, files=(wanted.files[0]._replace(size=size),)))
        return target

    monkeypatch.setattr("termchat.download.look_up", look_up)
    monkeypatch.setattr("termchat.download.ensure", ensure)
    async with open_app(None, registry=absent) as d:
        d.models.models = script("Here.")
        await d.say("/model hf:o/r", wait=False)
        await d.shows("no answer for 7 s")
        await d.press("escape")
        await d.shows("the download was stopped")
        hang.set()
        await d.press("enter")
        await d.shows("hf:o/r:Q4_0", "1.5 GB, MIT", "enter download")
        assert calls == ["look up hf:o/r"] * 2  # nothing is fetched unseen
        await d.press("enter")
        await d.until(lambda: [slot.reference for slot in d.app.engines.loaded] == ["hf:o/r:Q4_0"])
        assert calls[2:] == ["fetch hf:o/r:Q4_0"]
        assert d.app.engines.of("hf:o/r") is d.app.engines.of("hf:o/r:Q4_0")  # loaded once, by either name


async def test_the_list_has_models_of_other_programs(
    open_app: Any, script: Any, tmp_path: Path, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Found("ollama:tiny:latest", "Ollama", default_model, 98_362_432)
    gone = Found("ollama:gone:latest", "Ollama", tmp_path / "gone", None, "its file is gone")
    monkeypatch.setattr("termchat.tui.commands.models.everywhere", lambda: iter([found, gone]))
    near = ModelEntry("near", (LocalSource(default_model),))
    registry = Registry({"near": near}, "near", tmp_path / "models")
    async with open_app({"near": script("Near.")}, registry=registry, size=(120, 40)) as d:
        await d.press("f6")
        await d.shows("✓ ollama:tiny:latest", "98.4 MB  Ollama", str(default_model)[:40])
        assert "gone" not in d.screen
        await d.press("escape")


async def test_the_list_has_what_is_here_first_and_a_line_for_a_long_name(
    open_app: Any, script: Any, tmp_path: Path, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = f"lmstudio:owner/{'a-very-long-name-' * 6}GGUF/m-Q4_K_M.gguf"
    found = Found(long, "LM Studio", default_model, 98_362_432)
    monkeypatch.setattr("termchat.tui.commands.models.everywhere", lambda: iter([found]))
    entries = {
        "near": ModelEntry("near", (LocalSource(default_model),)),
        "far": ModelEntry("far", (LocalSource(tmp_path / "none"),)),
    }
    registry = Registry(entries, "near", tmp_path / "models")
    async with open_app({"near": script("Near.")}, registry=registry, size=(80, 24)) as d:
        await d.press("f6")
        await d.shows("● near", "✓ lmstudio:owner/a-very…", "m-Q4_K_M.gguf  98.4 MB", "⇣ far")
        assert d.screen.count(str(default_model)[:40]) == 2  # where nothing else is said of a model
        rows = d.screen.splitlines()
        places = [
            next(i for i, row in enumerate(rows) if text in row) for text in ("near", "✓ lmst", "⇣ far")
        ]
        assert places == sorted(places)
        await d.press(*"name-a-very")  # not in what is shown of it
        await d.until(lambda: "⇣ far" not in d.screen)
        assert "✓ lmstudio:owner" in d.screen
        await d.press("escape")

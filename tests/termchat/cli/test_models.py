"""Models that are damaged: found, told and mended; never called good unseen."""

import hashlib
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

DATA = random.Random(5).randbytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


class Hub(ThreadingHTTPServer):
    """Serves DATA; cut: bytes of the next answers. asked: the Range of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut: list[int] = []
        self.asked: list[str | None] = []
        self.failing = False
        self.linked: str | None = None


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.server
        asked = self.headers.get("Range")
        hub.asked.append(asked)
        if hub.failing:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        if hub.linked is not None:
            self.send_header("X-Linked-Etag", f'"{hub.linked}"')
        self.send_header("Content-Length", str(len(DATA) - start))
        self.end_headers()
        self.wfile.write(DATA[start:][: hub.cut.pop(0) if hub.cut else None])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_address[1]}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def model(home: Path) -> Path:
    """Where the registered model `mine` lands."""
    register(home, f'sha256 = "{SHA}"\nsize = {len(DATA)}')
    folder = home / "cache" / "termchat" / "models" / "mine"
    folder.mkdir(parents=True)
    return folder / "m.gguf"


def register(home: Path, known: str) -> None:
    file = home / "config" / "termchat" / "models.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'[models.mine]\n{known}\n[[models.mine.sources]]\nhuggingface = "o/r"\nfile = "m.gguf"\n'
    )


def damaged(data: bytes = DATA) -> bytes:
    return data[:100_000] + bytes(1000) + data[101_000:]


def test_N010_a_damaged_model_is_found_and_brought_again(termchat, hub, model):
    model.write_bytes(damaged())
    checked = termchat("models", "verify")
    assert checked.code == 1
    assert f"mine  damaged  its sha256 is {hashlib.sha256(damaged()).hexdigest()}, not {SHA}" in checked.out
    assert "run: termchat models pull mine" in checked.out
    pulled = termchat("models", "pull", "mine")
    assert pulled.code == 0
    assert "mine is damaged: its sha256 is" in pulled.err
    assert "here already" not in pulled.out
    assert model.read_bytes() == DATA
    again = termchat("models", "pull", "mine")
    assert again.out == f"mine is here already, its sha256 is right: {model}\n"
    assert len(hub.asked) == 1
    assert termchat("models", "verify", "mine").code == 0


@pytest.mark.slow
def test_N010_what_is_here_stays_until_the_new_file_is_verified(termchat, hub, model):
    model.write_bytes(damaged())
    hub.failing = True
    assert termchat("models", "pull", "mine").code == 1
    assert model.read_bytes() == damaged()
    hub.failing, hub.cut = False, [150_000]
    pulled = termchat("models", "pull", "mine", "--json")
    assert pulled.code == 0
    assert hub.asked == [None, None, "bytes=150000-"]
    assert model.read_bytes() == DATA
    assert sorted(file.name for file in model.parent.iterdir()) == [".lock", "m.gguf"]


def test_N010_a_cut_model_is_damaged_too(termchat, hub, model):
    model.write_bytes(DATA[:1000])
    checked = termchat("models", "verify", "--json")
    assert checked.code == 1
    (found,) = json.loads(checked.out)
    assert found == {
        "name": "mine",
        "path": str(model),
        "state": "damaged",
        "reason": "it has 1.0 kB, not 300.0 kB",
        "mend": "run: termchat models pull mine",
    }
    assert termchat("models", "pull", "mine").code == 0
    assert model.read_bytes() == DATA


@pytest.mark.parametrize("linked", [SHA, None])
def test_what_the_registry_does_not_know_is_remembered_from_the_download(termchat, hub, home, model, linked):
    register(home, "")
    hub.linked = linked
    pulled = termchat("models", "pull", "mine")
    assert pulled.code == 0
    said = (
        "mine could not be checked: neither models.toml nor its server says what it must be; what came has "
    )
    assert (f"{said}sha256 {SHA}" in pulled.err) == (linked is None)
    assert "mine  verified  it is as it came" in termchat("models", "verify").out
    model.write_bytes(damaged())
    assert termchat("models", "verify").code == 1
    assert termchat("models", "pull", "mine").code == 0
    assert model.read_bytes() == DATA
    assert termchat("models", "rm", "mine").code == 0
    assert [file.name for file in model.parent.iterdir()] == [".lock"]


def test_what_nothing_is_known_of_is_said_so(termchat, home, model):
    register(home, "")
    assert termchat("models", "verify").out == "no model is on this machine\n"
    model.write_bytes(DATA)
    checked = termchat("models", "verify", "mine", "mine")
    assert checked.code == 0
    assert "mine  unknown  nothing is known of it to check it against" in checked.out
    assert len(checked.out.splitlines()) == 2
    pulled = termchat("models", "pull", "mine")
    assert pulled.out.startswith("mine is here already, nothing is known of it to check it against: ")


def test_N010_doctor_finds_it_and_names_the_command(termchat, linked_model, home, default_model):
    file = home / "cache" / "termchat" / "models" / linked_model / default_model.name
    content = bytearray(default_model.read_bytes())
    content[50_000_000:51_000_000] = bytes(1_000_000)
    file.unlink()
    file.write_bytes(content)
    outcome = termchat("doctor", "--json")
    problems = json.loads(outcome.out)["problems"]
    assert outcome.code == 1
    assert [problem["mend"] for problem in problems if "damaged" in problem["what"]] == [
        "run: termchat models pull smollm2-135m"
    ]


def test_N010_a_file_that_cannot_be_loaded_names_the_command(termchat, linked_model, home, default_model):
    file = home / "cache" / "termchat" / "models" / linked_model / default_model.name
    file.unlink()
    with file.open("wb") as new:
        new.write(b"GGUF" + bytes(100))
        new.truncate(default_model.stat().st_size)
    outcome = termchat("Hi")
    assert outcome.code == 1
    assert outcome.err.endswith("; the file is damaged: termchat models pull smollm2-135m brings it again\n")
    assert "models pull" not in termchat("-m", str(file), "Hi").err

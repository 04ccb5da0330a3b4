"""Models of the Hub by name, end to end: chosen, shown, downloaded, checked, found again, removed."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import fake_hub
from fake_hub import COMMIT, FakeHub, status

GIB = 1 << 30


def data(seed: int, size: int = 5000) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in (
        "HF_TOKEN",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HOME",
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr("engine.free_memory", lambda *_: 8 * GIB)
    monkeypatch.setattr("termchat.download.progress.Meter.pause", lambda *_: None)
    with fake_hub.running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def folder(home: Path, repo: str, which: str, commit: str = COMMIT) -> Path:
    return home / "cache" / "termchat" / "models" / "_hf" / repo / commit / which


def test_a_quantization_is_chosen_shown_downloaded_and_found_again(termchat, hub, home):
    files = {f"M-{label}.gguf": data(i) for i, label in enumerate(["Q2_K", "Q4_K_M", "Q8_0", "BF16"])}
    hub.add("o/M-GGUF", {**files, "mmproj-M-f16.gguf": data(9), "README.md": b"x"})
    refused = termchat("models", "pull", "hf:o/M-GGUF")
    assert refused.code == 3
    assert refused.err == (
        "termchat: the model hf:o/M-GGUF:Q4_K_M (5.0 kB, apache-2.0) is not downloaded; "
        "add --yes to download it\n"
    )
    pulled = termchat("models", "pull", "hf:o/M-GGUF", "--yes", "--json")
    assert pulled.code == 0, pulled.err
    file = folder(home, "o/M-GGUF", "Q4_K_M") / "M-Q4_K_M.gguf"
    assert file.read_bytes() == files["M-Q4_K_M.gguf"]
    assert json.loads(pulled.out)["path"] == str(file)
    assert f"the model hf:o/M-GGUF:Q4_K_M (5.0 kB, apache-2.0) comes to {file.parent}" in pulled.err
    asked = len(hub.asked)
    for name in ("hf:o/M-GGUF", "hf:o/M-GGUF:q4km", "hf:o/M-GGUF:M-Q4_K_M.gguf", f"hf:o/M-GGUF:{COMMIT}"):
        shown = json.loads(termchat("models", "show", name, "--json").out)
        assert (shown["name"], shown["path"]) == ("hf:o/M-GGUF:Q4_K_M", str(file))
    assert len(hub.asked) == asked  # what is here is found without the Hub
    assert "hf:o/M-GGUF:Q4_K_M" in termchat("models", "list").out
    again = termchat("models", "pull", "hf:o/M-GGUF")
    assert again.out == f"hf:o/M-GGUF:Q4_K_M is here already, its sha256 is right: {file}\n"
    assert termchat("models", "rm", "hf:o/M-GGUF:q4_k_m").code == 0
    assert [each.name for each in file.parent.iterdir()] == [".lock"]
    assert "hf:o/M-GGUF" not in termchat("models", "list").out


def test_a_token_goes_to_the_hub_and_never_where_it_redirects_to(termchat, hub, home, monkeypatch):
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add("o/r", {"m-Q4_0.gguf": data(1)}, gated="auto", licence="llama3.2")
    pulled = termchat("models", "pull", "hf:o/r", "-y")
    assert pulled.code == 0
    assert {token for _, _, token in hub.asked} == {"Bearer hf_secret"}
    assert [token for _, _, token in hub.storage.asked] == [None]
    log = home / "state" / "termchat" / "termchat.log"
    assert "hf_secret" not in pulled.out + pulled.err + (log.read_text() if log.exists() else "")


def test_gated_and_private_ones_say_what_to_do(termchat, hub, monkeypatch):
    hub.token = "hf_right"
    hub.add("o/gated", {"m-Q4_0.gguf": data(1)}, gated="manual")
    hub.add("o/private", {"m-Q4_0.gguf": data(1)}, private=True)
    gated = termchat("models", "pull", "hf:o/gated", "--yes")
    assert gated.code == 1
    assert (
        f"o/gated is only for those who accept its licence: do so at {hub.url}/o/gated, then run "
        "`hf auth login`, or set HF_TOKEN to a token of yours"
    ) in gated.err
    private = termchat("models", "pull", "hf:o/private", "--yes")
    assert (
        "there is no repository o/private at 127.0.0.1, or it is private: run `hf auth login`" in private.err
    )
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    wrong = termchat("models", "pull", "hf:o/private", "--yes")
    assert "the Hub does not know your token; make a new one: run `hf auth login`" in wrong.err
    assert "hf_wrong" not in wrong.err
    assert [each.code for each in (private, wrong)] == [1, 1]


def test_what_does_not_exist_is_answered_with_what_does(termchat, hub):
    hub.add("o/r", {f"m-{label}.gguf": data(1) for label in ("Q4_K_M", "Q4_K_S", "Q8_0")})
    unknown = termchat("models", "pull", "hf:o/r:Q5_K_M", "-y")
    assert unknown.code == 3
    assert (
        "o/r has nothing in 'Q5_K_M'; did you mean Q4_K_M?; it has Q4_K_M (5.0 kB), Q4_K_S (5.0 kB)"
        in unknown.err
    )
    file = termchat("models", "pull", "hf:o/r:m-Q4_K_X.gguf", "-y")
    assert "o/r has no file 'm-Q4_K_X.gguf'; did you mean m-Q4_K_" in file.err
    assert "o/r has no revision v9" in termchat("models", "pull", "hf:o/r:v9", "-y").err
    assert "there is no repository o/none" in termchat("models", "pull", "hf:o/none", "-y").err
    form = termchat("models", "pull", "hf:o/r@main", "-y")
    assert form.code == 3
    assert "is not of the form hf:OWNER/REPOSITORY[:QUANTIZATION|FILE.gguf][:REVISION]" in form.err


def test_a_model_in_parts_in_a_folder_comes_whole_and_goes_on_where_it_stopped(termchat, hub, home):
    names = [f"Q8_0/m-Q8_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    hub.add("o/big", {name: data(i, 300_000) for i, name in enumerate(names)})
    hub.storage.cut[:] = [300_000, 100_000, 0, 0, 0, 0, 0, 0]
    hub.storage.faults[:] = []
    here = folder(home, "o/big", "Q8_0")
    failed = termchat("models", "pull", "hf:o/big:q8_0", "-y")
    hub.storage.cut.clear()
    if failed.code:
        partial = json.loads(termchat("models", "show", "hf:o/big:Q8_0", "--json").out)
        assert partial["path"] is None
        assert partial["partial"] == 400_000
        assert termchat("models", "pull", "hf:o/big:q8_0", "-y").code == 0
    for i, name in enumerate(names):
        assert (here / Path(name).name).read_bytes() == data(i, 300_000)
    ranges = [asked for _, asked, _ in hub.storage.asked]
    assert ranges.count(None) <= 3 + 4
    assert "bytes=100000-" in ranges
    shown = json.loads(termchat("models", "show", "hf:o/big", "--json").out)
    assert (shown["size"], shown["path"]) == (900_000, str(here / Path(names[0]).name))
    (here / Path(names[1]).name).write_bytes(data(1, 300_000)[:-1] + b"?")
    verified = termchat("models", "verify", "hf:o/big", "--json")
    assert verified.code == 1
    (row,) = json.loads(verified.out)
    assert "m-Q8_0-00002-of-00003.gguf: its sha256 is" in row["reason"]
    asked = len(hub.storage.asked)
    assert termchat("models", "pull", "hf:o/big").code == 0
    assert len(hub.storage.asked) == asked + 1  # the damaged part alone came again
    assert termchat("models", "verify", "hf:o/big").code == 0


def test_a_repository_of_safetensors_comes_as_a_folder_without_pickles(termchat, hub, home):
    files = {
        "config.json": b"{}",
        "tokenizer.json": data(1),
        "model.safetensors": data(2),
        "pytorch_model.bin": data(3),
        "onnx/model.onnx": data(4),
        "modeling_x.py": b"raise SystemExit",
    }
    hub.add("o/st", files)
    assert termchat("models", "pull", "hf:o/st", "--yes").code == 0
    here = folder(home, "o/st", "safetensors")
    kept = sorted(each.name for each in here.iterdir() if not each.name.startswith("."))
    assert kept == ["config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads(termchat("models", "show", "hf:o/st", "--json").out)["path"] == str(here)
    (here / "config.json").write_bytes(b"[]")
    assert "config.json: it is not the file that is listed" in termchat("models", "verify", "hf:o/st").out
    hub.add("o/pickles", {"pytorch_model.bin": data(3), "config.json": b"{}"})
    pickles = termchat("models", "pull", "hf:o/pickles", "--yes")
    assert "holds its weights as pickles only, which can run code and are not loaded" in pickles.err


@pytest.mark.parametrize(
    ("faults", "code", "said"),
    [
        ([status(503)] * 2, 0, ""),
        ([status(429, Retry_After="1")] * 2, 0, ""),
        ([status(503)] * 9, 1, "127.0.0.1 answered 503 Service Unavailable, 4 times; try again later"),
        ([status(429, Retry_After="86400")], 1, "and asks to come back in 24 h"),
        ([status(200)], 1, "the answer of 127.0.0.1 on o/r cannot be used: it names no commit"),
    ],
)
def test_servers_that_fail(termchat, hub, faults, code, said):
    hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    hub.faults[:] = faults
    pulled = termchat("models", "pull", "hf:o/r", "-y")
    assert pulled.code == code
    assert said in pulled.err
    assert code == 0 or pulled.err.count("\n") == 1


def test_offline_says_so_and_uses_what_is_here(termchat, hub, monkeypatch):
    hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    assert termchat("models", "pull", "hf:o/r", "-y").code == 0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert "HF_HUB_OFFLINE is set" in termchat("models", "pull", "hf:o/other", "-y").err
    again = termchat("models", "pull", "hf:o/r")
    assert again.code == 0
    assert "cannot be looked up, so it is only checked: HF_HUB_OFFLINE is set" in again.err
    assert len(hub.asked) == asked


def test_nobody_there_is_one_line(termchat, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    pulled = termchat("models", "pull", "hf:o/r", "-y")
    assert pulled.code == 1
    assert "no network (tried Hugging Face): cannot reach http://127.0.0.1:9/api/models/o/r" in pulled.err
    assert pulled.err.count("\n") == 1


def test_the_hubs_cache_is_used_in_place_and_never_touched(termchat, hub, home, monkeypatch):
    cache = home / "elsewhere"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    repository = cache / "models--o--r"
    content = data(1)
    blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
    snapshot = repository / "snapshots" / COMMIT
    for each in (blob.parent, snapshot, repository / "refs"):
        each.mkdir(parents=True)
    blob.write_bytes(content)
    (repository / "refs" / "main").write_text(COMMIT)
    (snapshot / "m-Q4_0.gguf").symlink_to(os.path.relpath(blob, snapshot))
    from termchat.paths import Paths
    from termchat.registry import Registry

    found = Registry.load(Paths.default()).resolve("hf:o/r:q4_0")
    assert (found.path, found.reference) == (snapshot / "m-Q4_0.gguf", "hf:o/r:Q4_0")
    assert hub.asked == []
    removed = termchat("models", "rm", "hf:o/r")
    assert removed.code == 1
    assert f"it is another program's, {snapshot / 'm-Q4_0.gguf'}" in removed.err
    assert blob.read_bytes() == content


def test_a_prompt_with_a_model_of_the_hub_needs_yes_without_a_terminal(termchat, hub):
    hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    asked = termchat("-m", "hf:o/r", "Hi")
    assert asked.code == 3
    assert "the model hf:o/r is not downloaded; run: termchat models pull hf:o/r, or add --yes" in asked.err
    assert hub.asked == []
    loaded = termchat("-m", "hf:o/r", "--yes", "Hi")
    assert loaded.code == 1
    assert "m-Q4_0.gguf is not a GGUF file" in loaded.err


def test_a_newer_commit_comes_beside_the_old_one(termchat, hub, home):
    repository = hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    assert termchat("models", "pull", "hf:o/r", "-y").code == 0
    old = folder(home, "o/r", "Q4_0") / ".model.json"
    os.utime(old, (1, 1))
    newer = "f" * 40
    repository.revisions["main"] = newer
    repository.files["m-Q4_0.gguf"] = data(2)
    assert termchat("models", "pull", "hf:o/r", "-y").code == 0
    listed = [row["name"] for row in json.loads(termchat("models", "list", "--json").out)]
    assert [name for name in listed if name.startswith("hf:")] == ["hf:o/r:Q4_0", f"hf:o/r:Q4_0:{COMMIT}"]
    assert json.loads(termchat("models", "show", "hf:o/r", "--json").out)["path"].split("/")[-3] == newer
    assert termchat("models", "rm", f"hf:o/r:Q4_0:{COMMIT}").code == 0
    assert json.loads(termchat("models", "show", "hf:o/r", "--json").out)["path"] is not None

"""Models of the Hub by name, end to end: chosen, shown, downloaded, checked, found again, removed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
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
        "hf auth login, or set HF_TOKEN to a token of yours"
    ) in gated.err
    private = termchat("models", "pull", "hf:o/private", "--yes")
    assert "there is no repository o/private at 127.0.0.1, or it is private: run hf auth login" in private.err
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    wrong = termchat("models", "pull", "hf:o/private", "--yes")
    assert (
        "the Hub does not take your token (Invalid credentials in Authorization header); make a" in wrong.err
    )
    assert "hf_wrong" not in wrong.err
    assert [each.code for each in (private, wrong)] == [3, 1]
    assert "hf:" not in termchat("models", "list").out  # nothing has come


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
    for command in (("models", "pull", "hf:o/none", "-y"), ("-m", "hf:o/none", "-y", "Hi")):
        none = termchat(*command)
        assert (none.code, "there is no repository o/none" in none.err) == (3, True)
    form = termchat("models", "pull", "hf:o/r@main", "-y")
    assert form.code == 3
    assert "is not of the form hf:OWNER/REPOSITORY[:QUANTIZATION or FILE.gguf][:REVISION]" in form.err


def test_a_model_in_parts_in_a_folder_comes_whole_and_goes_on_where_it_stopped(termchat, hub, home):
    names = [f"Q8_0/m-Q8_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    hub.add("o/big", {name: data(i, 300_000) for i, name in enumerate(names)})
    hub.storage.cut[:] = [300_000, 100_000, 0, 0, 0, 0, 0, 0]
    here = folder(home, "o/big", "Q8_0")
    failed = termchat("models", "pull", "hf:o/big:q8_0", "-y")
    hub.storage.cut.clear()
    assert failed.code == 1
    partial = json.loads(termchat("models", "show", "hf:o/big:Q8_0", "--json").out)
    assert (partial["path"], partial["partial"]) == (None, 400_000)
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


@pytest.fixture
def stranger(home: Path, default_model: Path) -> Path:
    """Ollama's and LM Studio's folders: a model that can be loaded, two that cannot."""
    models = home / ".ollama" / "models"
    digest = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    manifest = models / "manifests" / "registry.ollama.ai" / "library" / "smol" / "latest"
    blob = models / "blobs" / f"sha256-{digest}"
    for each in (manifest.parent, blob.parent):
        each.mkdir(parents=True)
    blob.symlink_to(default_model)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    lm_studio = home / ".lmstudio" / "models" / "o" / "r"
    lm_studio.mkdir(parents=True)
    (lm_studio / "junk.gguf").write_bytes(b"junk")
    header = gguf.GGUFWriter(lm_studio / "old.gguf", "falcon")
    header.add_context_length(2048)
    header.write_header_to_file()
    header.write_kv_data_to_file()
    header.close()
    return blob


def test_all_models_of_this_machine_are_listed_with_what_can_be_loaded(termchat, hub, stranger):
    listed = termchat("models", "list", "--all", "--json")
    assert listed.code == 0
    rows = {row["name"]: row for row in json.loads(listed.out)}
    smol = rows["ollama:smol:latest"]
    assert smol == {
        "name": "ollama:smol:latest",
        "path": str(stranger),
        "size": 98362432,
        "licence": "apache-2.0",
        "from": "Ollama",
        "architecture": "llama",
        "format": "Q4_1",
        "context_length": 8192,
        "problem": None,
    }
    assert (
        rows["lmstudio:o/r/junk.gguf"]["problem"]
        == "it is not a GGUF file: it ends after 4 bytes; download it again"
    )
    problem = rows["lmstudio:o/r/old.gguf"]["problem"]
    assert problem.startswith("general.architecture 'falcon' is not supported")
    assert (rows["smollm2-135m"]["from"], rows["smollm2-135m"]["path"]) == ("termchat", None)
    plain = termchat("models", "list", "--all").out
    assert re.search(r"^ollama:smol:latest +Ollama +98\.4 MB +Q4_1 +8,192 +here +/", plain, re.MULTILINE)
    assert "ollama:smol" not in termchat("models", "list").out


def test_another_programs_model_is_shown_checked_and_never_removed(termchat, hub, stranger):
    shown = json.loads(termchat("models", "show", "ollama:smol", "--json").out)
    assert (shown["parameters"], shown["chat_template"], shown["thinking"]) == (134515008, True, False)
    assert "parameters:      134,515,008" in termchat("models", "show", "ollama:smol").out
    assert json.loads(termchat("models", "show", "smol:latest", "--json").out) == shown  # as --model takes it
    of_file = json.loads(termchat("models", "show", str(stranger), "--json").out)
    assert of_file == {**shown, "name": stranger.name, "from": ""}
    verified = termchat("models", "verify", "ollama:smol")
    assert verified.code == 0
    assert "ollama:smol  verified  its sha256 is right" in verified.out
    removed = termchat("models", "rm", "ollama:smol")
    assert removed.code == 3
    assert stranger.exists()


def test_a_model_gets_a_name_of_ones_own(termchat, hub, home, stranger, default_model):
    file = home / "config" / "termchat" / "models.toml"
    file.parent.mkdir(parents=True)
    before = '# mine, do not touch\r\n[models.smollm2-135m]\r\ndescription = "x"  # so\r\n'
    file.write_bytes(before.encode())
    hub.add("o/r", {"m-Q4_0.gguf": data(1)}, licence="mit")
    hub.add("o/parts", {f"m-Q8_0-{i:05}-of-00002.gguf": data(i) for i in (1, 2)})
    hub.add("o/st", {"config.json": b"{}", "model.safetensors": data(3)})
    places = {
        "file": str(default_model),
        "of-ollama": "ollama:smol",
        "of-hub": "hf:o/r",
        "in-parts": "hf:o/parts:q8_0",
        "a-folder": "hf:o/st",
    }
    for name, place in places.items():
        added = termchat("models", "add", name, place)
        assert added.code == 0, added.err
        assert added.err == ""
    text = file.read_bytes().decode()
    assert text.startswith(before)
    assert "\n" not in text.replace("\r\n", "")
    rows = {row["name"]: row for row in json.loads(termchat("models", "list", "--json").out)}
    assert rows["of-hub"]["sha256"] == hashlib.sha256(data(1)).hexdigest()
    assert (rows["of-hub"]["size"], rows["of-hub"]["licence"]) == (5000, "mit")
    assert rows["of-hub"]["sources"] == ["Hugging Face o/r, m-Q4_0.gguf"]
    assert rows["in-parts"]["sha256"] == [hashlib.sha256(data(i)).hexdigest() for i in (1, 2)]
    assert rows["a-folder"]["sources"] == [f"hf:o/st:safetensors:{COMMIT}"]
    assert rows["file"]["path"] == str(default_model)
    assert rows["of-ollama"]["path"] == str(stranger)
    for name in ("of-hub", "in-parts", "a-folder"):
        pulled = termchat("models", "pull", name, "--yes")
        assert pulled.code == 0, pulled.err
        assert termchat("models", "verify", name).code == 0
        assert json.loads(termchat("models", "show", name, "--json").out)["path"] is not None
    assert (home / "cache/termchat/models/in-parts/m-Q8_0-00002-of-00002.gguf").read_bytes() == data(2)
    assert termchat("models", "rm", "in-parts").code == 0
    for name in places:
        assert termchat("models", "forget", name).code == 0
    assert file.read_bytes().decode().strip() == before.strip()
    assert default_model.exists()
    assert stranger.exists()
    again = termchat("models", "forget", "file")
    assert again.code == 1
    assert f"{file} has no model 'file'; `termchat models rm` deletes downloads" in again.err


def test_names_that_cannot_be_given(termchat, hub, home, linked_model, default_model):
    taken = termchat("models", "add", "qwen3-8b", str(default_model))
    assert taken.code == 1
    assert "there is a model qwen3-8b already; name another one, or add --force to replace it" in taken.err
    for name in ("../x", "a b", "hf:o", "", "_hf", "x" * 101, "é"):
        assert "a model cannot be called" in termchat("models", "add", name, str(default_model)).err
    broken = home / "broken.gguf"
    broken.write_bytes(b"x")
    refused = termchat("models", "add", "b", str(broken))
    assert (
        "cannot be loaded: it is not a GGUF file: it ends after 1 bytes; download it again; --force"
        in refused.err
    )
    named = termchat("models", "add", "b", linked_model)
    assert "smollm2-135m is the name of a model already; give a path, or hf:OWNER/REPOSITORY" in named.err
    assert termchat("models", "add", "b", str(home / "gone.gguf")).code == 3
    file = home / "config" / "termchat" / "models.toml"
    assert not file.exists()
    assert termchat("models", "add", "qwen3-8b", str(default_model), "--force").code == 0
    file.write_text("[models\n")
    bad = termchat("models", "add", "c", str(default_model))
    assert bad.code == 1
    assert f"{file} cannot be edited: it is not valid TOML" in bad.err
    assert file.read_text() == "[models\n"


def test_what_is_half_here_is_told_and_removed(termchat, hub, home):
    hub.add("o/r", {"m-Q4_0.gguf": data(1, 300_000)})
    hub.storage.cut[:] = [100_000] + [0] * 9
    assert termchat("models", "pull", "hf:o/r", "-y").code == 1
    assert "hf:o/r:Q4_0" in termchat("models", "list").out
    assert "100.0 kB downloaded" in termchat("models", "list").out
    assert termchat("models", "rm", "hf:o/r").code == 0
    assert "hf:o/r" not in termchat("models", "list").out


@pytest.mark.slow
def test_processes_that_want_one_model_at_once_fetch_it_once(hub, home):
    files = {f"m-Q8_0-{i:05}-of-00003.gguf": data(i, 200_000) for i in (1, 2, 3)}
    hub.add("o/r", files)
    command = [sys.executable, "-m", "termchat", "models", "pull", "hf:o/r", "--yes"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    results = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * 3, results
    assert len(hub.storage.asked) == 3
    here = folder(home, "o/r", "Q8_0")
    assert {each.name: each.read_bytes() for each in here.glob("*.gguf")} == files


def test_the_shell_completes_names_of_every_kind(hub, home, stranger):
    from termchat.cli.completions import complete_model

    hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    names = [item.value for item in complete_model(None, None, "ollama:s")]
    assert names == ["ollama:smol:latest"]
    assert "qwen3-8b" in [item.value for item in complete_model(None, None, "qwen3")]
    assert [item.type for item in complete_model(None, None, "./x")] == ["file"]
    for odd in (b"a\xffb", b"a\nb", b"a\x1bb"):
        file = os.fsencode(home) + b"/.lmstudio/models/o/x/" + odd + b".gguf"
        os.makedirs(os.path.dirname(file), exist_ok=True)
        os.symlink(stranger, file)
    (home / ".lmstudio/models/o/x/ab.gguf").symlink_to(stranger)
    assert [item.value for item in complete_model(None, None, "lmstudio:o/x")] == ["lmstudio:o/x/ab.gguf"]


def test_a_repository_is_called_as_its_owner_writes_it(termchat, hub, home):
    hub.add("Own/Repo", {"m-Q4_0.gguf": data(1)})
    hub.repositories["own/repo"] = hub.repositories["Own/Repo"]
    hub.canonical["own/repo"] = "Own/Repo"
    assert termchat("models", "pull", "hf:own/repo", "-y").code == 0
    assert folder(home, "Own/Repo", "Q4_0").exists()
    shown = termchat("models", "show", "hf:own/repo:q4_0", "--json")
    assert json.loads(shown.out)["name"] == "hf:Own/Repo:Q4_0"


def test_what_does_not_fit_the_disk_is_refused_before_it_comes(termchat, hub, monkeypatch):
    hub.add("o/r", {f"m-Q8_0-{i:05}-of-00002.gguf": data(i, 300_000) for i in (1, 2)})
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=400_000))
    full = termchat("models", "pull", "hf:o/r", "-y")
    assert full.code == 1
    assert "600.0 kB are needed, 400.0 kB are free" in full.err
    assert hub.storage.asked == []


def test_notes_that_are_broken_or_copied_are_no_models(termchat, hub, home):
    hub.add("o/r", {"m-Q4_0.gguf": data(1)})
    assert termchat("models", "pull", "hf:o/r", "-y").code == 0
    here = folder(home, "o/r", "Q4_0")
    good = (here / ".model.json").read_text()
    copied = folder(home, "o/r", "Q5_0")
    copied.mkdir()
    (copied / ".model.json").write_text(good)
    broken = ["", "[]", "3", "[" * 100_000, "{}", good.replace("hf:o/r:Q4_0", "hf:../.."),
              good.replace("hf:o/r:Q4_0", "smollm2-135m"), good.replace("m-Q4_0.gguf", "../../x.gguf"),
              good.replace('"files"', '"fils"'), good.replace("o/r", "o/s")]  # fmt: skip
    for text in broken:
        (here / ".model.json").write_text(text)
        listed = termchat("models", "list", "--json")
        assert listed.code == 0, text
        assert not [row for row in json.loads(listed.out) if row["name"].startswith("hf:")], text


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("arguments", [("models", "pull", "hf:o/r"), ("-m", "hf:o/r", "Hi")])
def test_on_a_terminal_size_and_licence_are_shown_and_asked_about(
    termchat, hub, monkeypatch, arguments, answer
):
    hub.add("o/r", {"m-Q4_0.gguf": data(1)}, licence="llama3.2")
    asked: list[str] = []
    monkeypatch.setattr("termchat.cli.console.Console.stdin_kind", "terminal")
    always = property(lambda _: True, lambda *_: None)
    monkeypatch.setattr("termchat.cli.output.Messages.is_terminal", always, raising=False)
    monkeypatch.setattr("termchat.cli.console.Console.ask", lambda _, text: asked.append(text) or answer)
    outcome = termchat(*arguments)
    assert len(asked) == 1
    assert "the model hf:o/r:Q4_0 (5.0 kB, llama3.2)" in asked[0]
    assert bool(hub.storage.asked) == answer
    assert outcome.code == (3 if not answer else 0 if "pull" in arguments else 1)  # it is no GGUF file


def packed(body: bytes) -> Callable[[Any], None]:
    """A fault: a list of files that was compressed on the way."""
    return lambda handler: handler.reply(200, gzip.compress(body), {"Content-Encoding": "gzip"})


def test_a_list_of_files_that_a_proxy_compressed_is_read(termchat, hub):
    found = hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    hub.faults = [packed(json.dumps(fake_hub._listing("o/M-GGUF", found, COMMIT)).encode())]
    assert termchat("models", "pull", "hf:o/M-GGUF", "--yes").code == 0
    hub.faults = [packed(b"{}" + b" " * (17 << 20))]
    refused = termchat("models", "pull", "hf:o/N-GGUF", "--yes")
    assert refused.code == 1
    assert "the answer has more than 16777216 bytes" in refused.err


def test_a_log_in_page_instead_of_a_list_of_files_is_told(termchat, hub):
    hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    hub.faults = [lambda handler: handler.reply(200, b"\n<!DOCTYPE html><html>Welcome")]
    refused = termchat("models", "pull", "hf:o/M-GGUF", "--yes")
    assert refused.code == 1
    assert "answered with a web page instead of the list of files; a log-in page of your" in refused.err


def test_a_refusal_is_a_matter_of_the_licence_only_if_the_hub_says_so(termchat, hub):
    hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    hub.faults = [status(403)]
    assert "answered 403 Forbidden; if the model asks for it" in termchat("models", "pull", "hf:o/M-GGUF").err
    hub.faults = [status(403, X_Error_Code="GatedRepo")]
    assert "o/M-GGUF is only for those who accept" in termchat("models", "pull", "hf:o/M-GGUF").err


def test_the_hubs_own_words_are_passed_on(termchat, hub, monkeypatch):
    hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    hub.faults = [status(403, X_Error_Message="Access to this resource is disabled.")]
    refused = termchat("models", "pull", "hf:o/M-GGUF")
    assert "the Hub does not give o/M-GGUF: Access to this resource is disabled\n" in refused.err
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    hub.faults = [status(401, X_Error_Message='User Access Token "x" is expired')]
    refused = termchat("models", "pull", "hf:o/M-GGUF")
    assert refused.code == 1
    assert 'the Hub does not take your token (User Access Token "x" is expired); make a new' in refused.err


def test_a_mirror_below_a_path_is_asked_and_named_right(termchat, hub, monkeypatch):
    hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    do_get = hub.RequestHandlerClass.do_GET

    def below(handler: Any) -> None:
        handler.path = handler.path.removeprefix("/artifactory/api/hf")
        do_get(handler)

    monkeypatch.setattr(hub.RequestHandlerClass, "do_GET", below)
    monkeypatch.setenv("HF_ENDPOINT", f" {hub.url}/artifactory/api/hf/ ")
    assert termchat("models", "pull", "hf:o/M-GGUF", "--yes").code == 0
    assert "there is no repository no/such at 127.0.0.1" in termchat("models", "pull", "hf:no/such").err


def test_an_endpoint_that_was_written_carelessly_is_no_fault(hub, home):
    """The library takes HF_ENDPOINT apart when it is imported, so this is a process of its own."""
    hub.add("o/M-GGUF", {"M-Q4_0.gguf": data(1)})
    environment = {**os.environ, "HF_ENDPOINT": f"{hub.url} ", "XDG_CACHE_HOME": str(home / "cache")}
    command = [sys.executable, "-m", "termchat", "models", "pull", "hf:o/M-GGUF", "--yes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

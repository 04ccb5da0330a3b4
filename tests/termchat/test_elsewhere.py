"""Models of other programs: found where they lie, whatever else lies there, and never touched."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from termchat.elsewhere.everywhere import everywhere
from termchat.elsewhere.found import Found
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.registry_errors import NotDownloadedError, UnknownModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "application/vnd.ollama.image.model"
VARIABLES = (
    "OLLAMA_MODELS",
    "LLAMA_CACHE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def registry(user: Path) -> Registry:
    return Registry.load(Paths(*(user / "own" / name for name in ("config", "data", "cache", "state"))))


def put(path: Path, data: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def ollama_model(
    models: Path, name: str, *, kinds: tuple[str, ...] = (MODEL,), data: bytes = b"GGUF"
) -> Path:
    layers = []
    for kind in kinds:
        content = data if kind == MODEL else kind.encode()
        digest = hashlib.sha256(content).hexdigest()
        put(models / "blobs" / f"sha256-{digest}", content)
        layers.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)})
    put(models / "manifests" / name, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return models / "blobs" / f"sha256-{hashlib.sha256(data).hexdigest()}"


def cached(hub: Path, repo: str, *files: str, commit: str = COMMIT, ref: str = "main") -> Path:
    folder = hub / f"models--{repo.replace('/', '--')}"
    for name in files:
        blob = put(folder / "blobs" / hashlib.sha256(name.encode()).hexdigest(), name.encode())
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref:
        put(folder / "refs" / ref, commit.encode())
    return folder / "snapshots" / commit


def names() -> dict[str, str]:
    return {found.name: found.problem for found in everywhere()}


ANY = (
    [1],
    "x",
    3,
    None,
    True,
    {"mediaType": MODEL, "digest": 7},
    {"mediaType": [], "digest": f"sha256:{'0' * 64}"},
)


@pytest.mark.parametrize("layer", ANY, ids=repr)
def test_a_manifest_of_anything_is_one_that_is_not_ollamas(user: Path, layer: object) -> None:
    models = user / ".ollama" / "models"
    ollama_model(models, "registry.ollama.ai/library/good/latest")
    odd = json.dumps({"layers": [layer]}).encode()
    put(models / "manifests/registry.ollama.ai/library/odd/latest", odd)
    assert names() == {"ollama:good:latest": "", "ollama:odd:latest": "its manifest is no JSON of Ollama's"}


@pytest.mark.parametrize("pointer", [b"/a\0b", b"/" + b"x" * 4000, b"\n", b"\xff", b"relative", b""])
def test_a_pointer_to_nowhere_is_passed_over(user: Path, pointer: bytes) -> None:
    put(user / ".lmstudio-home-pointer", pointer)
    put(user / ".lmstudio" / "models" / "o" / "r" / "m.gguf")
    assert names() == {"lmstudio:o/r/m.gguf": ""}


def test_ollamas_models(user: Path, registry: Registry) -> None:
    models = user / ".ollama" / "models"
    blob = ollama_model(models, "registry.ollama.ai/library/llama3.2/1b")
    ollama_model(models, "registry.ollama.ai/someone/tuned/latest", data=b"GGUF2")
    ollama_model(models, "hf.co/o/r/Q4_K_M", data=b"GGUF3")
    adapter = "application/vnd.ollama.image.adapter"
    ollama_model(models, "registry.ollama.ai/library/lora/latest", kinds=(MODEL, adapter), data=b"GGUF4")
    ollama_model(
        models, "registry.ollama.ai/library/st/latest", kinds=("application/vnd.ollama.image.tensor",)
    )
    gone = ollama_model(models, "registry.ollama.ai/library/gone/latest", data=b"GGUF5")
    gone.unlink()
    put(models / "manifests" / "registry.ollama.ai" / "library" / "bad" / "latest", b"[" * 100_000)
    put(models / "manifests" / "registry.ollama.ai" / "library" / "huge" / "latest", b" " * (2 << 20))
    outside = {"layers": [{"mediaType": MODEL, "digest": "sha256:../../../etc/passwd"}]}
    put(models / "manifests/registry.ollama.ai/library/path/latest", json.dumps(outside).encode())
    assert names() == {
        "ollama:hf.co/o/r:Q4_K_M": "",
        "ollama:someone/tuned:latest": "",
        "ollama:llama3.2:1b": "",
        "ollama:lora:latest": "it has an adapter (LoRA), which is not supported",
        "ollama:st:latest": "its weights lie in many tensors, not in one GGUF file",
        "ollama:gone:latest": "its file is gone",
        "ollama:bad:latest": "its manifest is no JSON of Ollama's",
        "ollama:huge:latest": "its manifest cannot be read: it has more than 1048576 bytes",
        "ollama:path:latest": "its manifest is no JSON of Ollama's",
    }
    found = registry.resolve("ollama:llama3.2:1b")
    assert (found.path, found.name, found.reference) == (blob, "ollama:llama3.2:1b", "ollama:llama3.2:1b")
    assert registry.resolve("ollama:someone/tuned").name == "ollama:someone/tuned:latest"
    assert registry.resolve("LLAMA3.2:1B").path == blob  # in short, as no file is called so
    with pytest.raises(UnknownModelError, match=r"did you mean ollama:llama3\.2:1b"):
        registry.resolve("ollama:llama3.2:2b")
    with pytest.raises(UnknownModelError, match="ollama:gone:latest cannot be used: its file is gone"):
        registry.resolve("ollama:gone")


def test_names_with_folders_are_found_in_short_too(user: Path, registry: Registry) -> None:
    models = user / ".ollama" / "models"
    blob = ollama_model(models, "hf.co/bartowski/Smol-GGUF/Q4_1")
    ollama_model(models, "registry.ollama.ai/mannix/smol/latest")
    assert registry.resolve("hf.co/bartowski/Smol-GGUF:Q4_1").path == blob
    assert registry.resolve("mannix/smol").reference == "ollama:mannix/smol:latest"
    for path in ("./mannix/smol", "/mannix/smol", "~/mannix/smol", "mannix/other"):
        with pytest.raises(UnknownModelError, match="there is no model file or folder"):
            registry.resolve(path)


def test_a_place_that_ollama_is_told(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ollama_model(user / ".ollama" / "models", "registry.ollama.ai/library/not/here")
    ollama_model(user / "disk", "registry.ollama.ai/library/but/there")
    monkeypatch.setenv("OLLAMA_MODELS", str(user / "disk"))
    assert names() == {"ollama:but:there": ""}


def test_lm_studios_models(user: Path, registry: Registry) -> None:
    models = user / ".lmstudio" / "models"
    put(models / "o" / "r" / "m-Q4_0.gguf")
    put(models / "o" / "r" / "mmproj-m-f16.gguf")
    put(models / "o" / "big" / "b-00001-of-00002.gguf")
    put(models / "o" / "big" / "b-00002-of-00002.gguf")
    put(models / "o" / "half" / "h-00001-of-00002.gguf")
    put(models / "o" / "mlx" / "config.json", b"{}")
    put(models / "o" / "mlx" / "model.safetensors")
    (models / "o" / "r" / "gone.gguf").symlink_to(user / "nowhere")
    os.mkfifo(models / "o" / "r" / "pipe.gguf")
    (models / "loop").symlink_to(models)
    put(user / ".cache" / "lm-studio" / "models" / "p" / "q" / "old.gguf")
    put(user / "disk" / "x" / "y" / "far.gguf")
    put(user / ".lmstudio" / "settings.json", json.dumps({"downloadsFolder": str(user / "disk")}).encode())
    assert names() == {
        "lmstudio:x/y/far.gguf": "",
        "lmstudio:o/big/b-00001-of-00002.gguf": "",
        "lmstudio:o/half/h-00001-of-00002.gguf": "part 2 of 2 is not there",
        "lmstudio:o/mlx": "",
        "lmstudio:o/r/gone.gguf": "it is a link to a file that is gone",
        "lmstudio:o/r/m-Q4_0.gguf": "",
        "lmstudio:o/r/pipe.gguf": "it is no regular file",
        "lmstudio:p/q/old.gguf": "",
    }
    assert registry.resolve("lmstudio:o/r/m-q4_0").path == models / "o" / "r" / "m-Q4_0.gguf"
    put(models / "p" / "r" / "m-Q4_0.gguf")
    with pytest.raises(UnknownModelError, match=r"can be one of lmstudio:o/r/m-Q4_0\.gguf, lmstudio:p/r/"):
        registry.resolve("m-Q4_0")


@pytest.mark.parametrize(
    "settings",
    [b"", b"[]", b'{"downloadsFolder": 3}', b"[" * 100_000, b"\xff", b'{"downloadsFolder": "\\u0000/x"}'],
    ids=["empty", "list", "number", "deep", "bytes", "null"],
)
def test_settings_of_lm_studio_that_cannot_be_read(user: Path, settings: bytes) -> None:
    put(user / ".lmstudio" / "settings.json", settings)
    put(user / ".lmstudio-home-pointer", settings)
    put(user / ".lmstudio" / "models" / "o" / "r" / "m.gguf")
    assert names() == {"lmstudio:o/r/m.gguf": ""}


def test_llama_cpps_downloads(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(user / ".cache" / "llama.cpp" / "o_r_m-Q4_0.gguf")
    put(user / ".cache" / "llama.cpp" / "o_r_m-Q4_0.gguf.json", b"{}")
    put(user / ".cache" / "llama.cpp" / "o_r_m-Q4_0.gguf.downloadInProgress")
    assert names() == {"llamacpp:o_r_m-Q4_0.gguf": ""}
    put(user / "disk" / "x.gguf")
    monkeypatch.setenv("LLAMA_CACHE", str(user / "disk"))
    assert names() == {"llamacpp:x.gguf": ""}


def test_the_hubs_cache(user: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = user / ".cache" / "huggingface" / "hub"
    snapshot = cached(hub, "o/r", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf")
    older = cached(hub, "o/r", "m-Q4_K_M.gguf", commit="f" * 40, ref="v1")
    folder = cached(hub, "o/st", "config.json", "tokenizer.json", "model.safetensors")
    cached(hub, "o/half", "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json")
    (hub / "datasets--o--d").mkdir()
    dangling = cached(hub, "o/gone", "m-Q4_0.gguf")
    os.unlink(os.path.realpath(dangling / "m-Q4_0.gguf"))
    assert names() == {
        "hf:o/gone:Q4_0": "it is a link to a file that is gone",
        "hf:o/r:Q4_K_M": "",
        "hf:o/r:Q8_0": "",
        f"hf:o/r:Q4_K_M:{'f' * 40}": "",
        "hf:o/st:safetensors": "",
    }
    assert registry.resolve("hf:o/r").path == snapshot / "m-Q4_K_M.gguf"
    assert registry.resolve("hf:o/r:q8_0").path == snapshot / "m-Q8_0.gguf"
    assert registry.resolve("hf:o/r:v1").path == older / "m-Q4_K_M.gguf"
    assert registry.resolve(f"hf:o/r:{'f' * 40}").path == older / "m-Q4_K_M.gguf"
    assert registry.resolve("hf:o/st").path == folder
    for absent in ("hf:o/r:Q5_K_M", "hf:o/r:v2", "hf:o/gone", "hf:o/half", "hf:other/r"):
        with pytest.raises(NotDownloadedError):
            registry.resolve(absent)
    monkeypatch.setenv("HF_HUB_CACHE", str(user / "nowhere"))
    assert names() == {}


def test_folders_that_may_not_be_read(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(user / ".lmstudio" / "models" / "open" / "r" / "m.gguf")
    put(user / ".lmstudio" / "models" / "closed" / "r" / "m.gguf")
    ollama_model(user / ".ollama" / "models", "registry.ollama.ai/library/a/b")
    real = os.scandir

    def guarded(path: Any = ".") -> Any:
        if "closed" in str(path) or ".ollama" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("os.scandir", guarded)
    assert names() == {"lmstudio:open/r/m.gguf": ""}


def test_nothing_there_is_nothing_found(user: Path) -> None:
    assert names() == {}
    for place in (".ollama", ".lmstudio", ".cache"):
        put(user / place, b"a file in the way")
    assert names() == {}


def test_nothing_is_written_anywhere(user: Path, registry: Registry) -> None:
    ollama_model(user / ".ollama" / "models", "registry.ollama.ai/library/a/b")
    put(user / ".lmstudio" / "models" / "o" / "r" / "m.gguf")
    cached(user / ".cache" / "huggingface" / "hub", "o/r", "m-Q4_0.gguf")
    before = tree(user)
    for name in names():
        registry.resolve(name)
    assert tree(user) == before


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        found[str(path)] = (info.st_mtime_ns, info.st_mode)
    return found


def test_hundreds_of_files_are_no_trouble(user: Path, wide: Callable[[Path, int], None]) -> None:
    wide(user / ".lmstudio" / "models", 600)
    calls = []
    real = os.scandir

    def counted(path: Any = ".") -> Any:
        calls.append(path)
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.scandir", counted)
        assert len(names()) == 600
    assert len(calls) < 1500  # a folder is read once, a file not at all


@pytest.fixture
def wide() -> Callable[[Path, int], None]:
    def make(folder: Path, count: int) -> None:
        for i in range(count):
            put(folder / f"o{i // 10}" / f"r{i}" / "m-Q4_0.gguf")

    return make


def test_a_found_model_knows_its_short_name() -> None:
    assert Found("ollama:a:b", "Ollama", Path("x")).short == "a:b"

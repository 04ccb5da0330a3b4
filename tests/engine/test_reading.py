"""A start opens each file of a model once, and parses it once; a tokenizer alone needs no weights."""

import builtins
import importlib
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from engine import EngineConfig
from engine.loading.gguf_cursor import Cursor
from engine.model import LoadedModel, load_model
from engine.tokenization import load_tokenizer

SCRIPTS = Path(__file__).parents[2] / "scripts"
FOLDER = [
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("fuzz_models")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file below the test's folder has been opened."""
    counts: Counter[str] = Counter()
    for module in (io, builtins):
        original: Callable[..., Any] = module.open

        def counted(file: Any, *args: Any, _open: Callable[..., Any] = original, **kwargs: Any) -> Any:
            if str(file).startswith(str(tmp_path)):
                counts[Path(file).name] += 1
            return _open(file, *args, **kwargs)

        monkeypatch.setattr(module, "open", counted)
    return counts


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        with (folder / name).open("wb") as file:
            file.write(data)
    return folder


def start(path: Path) -> LoadedModel:
    config = EngineConfig(
        model=path, backend="native", threads=1, kv_blocks=4, max_batch_tokens=32, max_sequences=2
    )
    loaded = load_model(config)
    loaded.runner.close()
    return loaded


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_a_folder_is_read_once(
    models: ModuleType,
    opened: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentencepiece: bool,
) -> None:
    more = {"special_tokens_map.json": b'{"pad_token": "x"}', "chat_template.json": b"{}"}
    files = models.folder_model(sentencepiece=sentencepiece) | more
    del files["tokenizer_config.json"]
    folder = write(tmp_path / "m", files | {"tokenizer_config.json": b'{"bos_token": null}'})
    parsed: list[str] = []
    loads = json.loads

    def counted(text: str, **how: Any) -> Any:
        parsed.append(text)
        return loads(text, **how)

    opened.clear()
    monkeypatch.setattr("engine.loading.files.json.loads", counted)
    start(folder)
    assert opened == Counter(FOLDER)
    assert [parsed.count((folder / name).read_text()) for name in FOLDER if name.endswith(".json")] == [1] * 6


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_a_gguf_file_is_read_once(
    models: ModuleType,
    opened: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentencepiece: bool,
) -> None:
    folder = write(tmp_path / "m", models.gguf_model(sentencepiece=sentencepiece))
    keys: Counter[str] = Counter()
    name = Cursor.name

    def counted(cursor: Cursor, field: str) -> str:
        found = name(cursor, field)
        keys[found] += 1
        return found

    opened.clear()
    monkeypatch.setattr(Cursor, "name", counted)
    start(folder)
    assert opened == {"model.gguf": 1}
    assert keys["tokenizer.ggml.tokens"] == 1
    assert set(keys.values()) == {1}


def test_a_tokenizer_alone_needs_no_weights(models: ModuleType, opened: Counter[str], tmp_path: Path) -> None:
    files = models.folder_model(sentencepiece=False)
    weights = {"config.json", "model.safetensors"}
    folder = write(tmp_path / "m", {name: data for name, data in files.items() if name not in weights})
    opened.clear()
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    assert set(opened.values()) == {1}
    assert not weights & opened.keys()


def test_what_ends_a_turn_comes_together_in_one_place(models: ModuleType, tmp_path: Path) -> None:
    """Names of tokens, ids of the files that the tokenizer knows, and those that only the weights have."""
    files = models.folder_model(sentencepiece=True)
    tensors = safetensors.numpy.load(files["model.safetensors"])
    known = len(tensors["model.embed_tokens.weight"])
    tensors["model.embed_tokens.weight"] = np.pad(tensors["model.embed_tokens.weight"], [(0, 8), (0, 0)])
    config = json.loads(files["config.json"]) | {"vocab_size": known + 8, "eos_token_id": [5, known + 8]}
    files |= {
        "config.json": json.dumps(config).encode(),
        "generation_config.json": json.dumps({"eos_token_id": [known + 3, 10**9]}).encode(),
        "model.safetensors": safetensors.numpy.save(tensors),
    }
    loaded = start(write(tmp_path / "m", files))
    assert loaded.end_ids == {2, 5, known - 1, known + 3}  # </s> and <|im_end|> by their names
    assert loaded.tokenizer.end_ids == loaded.end_ids | {known + 8, 10**9}

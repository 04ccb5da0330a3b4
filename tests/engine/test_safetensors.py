"""The safetensors reader: single files, shards, and what it refuses of broken and hostile ones."""

import json
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.loading.folder import Folder
from engine.loading.safetensors import read_folder, read_safetensors
from engine.quantization import dequantize
from engine.types import EngineError

RNG = np.random.default_rng(0)
TENSORS = {
    "a": RNG.standard_normal((3, 5)).astype(np.float32),
    "b": RNG.standard_normal(7).astype(np.float16),
    "c": RNG.standard_normal((2, 2, 2)).astype(np.float32),
}


def build(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refuse(action: Callable[[], Any]) -> str:
    with pytest.raises(EngineError) as caught:
        action()
    assert caught.value.code == "model_invalid"
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_file_of_the_library_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file(TENSORS, path, metadata={"format": "pt"})
    tensors = read_safetensors(path)
    assert set(tensors) == set(TENSORS)
    for name, expected in TENSORS.items():
        code = {"F32": "<f4", "F16": "<f2"}[tensors[name].type]
        assert tensors[name].shape == expected.shape
        assert np.array_equal(tensors[name].data.view(code).reshape(expected.shape), expected)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a safetensors file"),
    "html": (b"<!DOCTYPE html><html></html>", "is not a safetensors file"),
    "header size": (struct.pack("<Q", 2**60) + b"{}" + bytes(50), "the header claims 1152921504606846976"),
    "header past the end": (struct.pack("<Q", 99) + b"{}" + bytes(50), "its header alone has 99 bytes"),
    "cut in its header": (struct.pack("<Q", 99), "it ends after 8 bytes"),
    "no JSON": (build(b'{"a": '), "the header is not valid JSON"),
    "deep JSON": (build(b'{"a":' + b"[" * 100_000), "the header is not valid JSON"),
    "no UTF-8": (build(b'{"\xff": 1}'), "the header is not valid JSON"),
    "name twice": (build(b'{"a": 1, "a": 2}'), "a key stands twice"),
    "no object": (build({"a": 3}), "tensor 'a' is not described by an object"),
    "no dtype": (build({"a": {"shape": [1]}}), "unknown dtype"),
    "dtype": (build({"a": entry("F31")}, bytes(8)), "unknown dtype 'F31'"),
    "dtype list": (build({"a": entry(["F32"])}, bytes(8)), "unknown dtype"),
    "shape": (build({"a": entry(shape="2")}, bytes(8)), "invalid shape"),
    "negative": (build({"a": entry(shape=[-2])}, bytes(8)), "invalid shape"),
    "bool": (build({"a": entry(shape=[True])}, bytes(8)), "invalid shape"),
    "fraction": (build({"a": entry(shape=[2.0])}, bytes(8)), "invalid shape"),
    "dimensions": (build({"a": entry(shape=[1] * 9, offsets=[0, 4])}, bytes(4)), "invalid shape"),
    "offsets": (build({"a": entry(offsets=[0])}, bytes(8)), "invalid data_offsets"),
    "offsets swapped": (build({"a": entry(offsets=[8, 0])}, bytes(8)), "-8 bytes of data"),
    "too few bytes": (build({"a": entry(shape=[3])}, bytes(8)), "its shape (3,) of F32 needs 12"),
    "wrapping": (build({"a": entry(shape=[2**62, 4])}, bytes(8)), "tensor 'a' has 8 bytes"),
    "overlap": (build({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)), "'b' overlaps"),
    "gap": (build({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)), "'b' leaves a gap"),
    "left over": (build({"a": entry()}, bytes(9)), "1 bytes follow the last tensor"),
    "truncated": (
        build({"a": entry(), "b": entry(offsets=[8, 16])}, bytes(15)),
        "ends before the end of tensor 'b'",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_B019_broken_files_are_refused(kind: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[kind]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    message = refuse(lambda: read_safetensors(path))
    assert reason in message
    assert str(path) in message


def test_truncation_says_how_much_is_needed_and_present(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    data = build({"a": entry(), "b": entry(offsets=[8, 16])}, bytes(16))
    path.write_bytes(data[:-9])
    message = refuse(lambda: read_safetensors(path))
    assert f"{len(data)} bytes are needed and {len(data) - 9} are present" in message
    assert "'a'" in message


def test_mutated_files_load_or_are_refused(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "m.safetensors"
    whole = safetensors.numpy.save(TENSORS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(260)
            if rng.random() < 0.5:
                data[at] = rng.choice(b'0123456789[]{}",:-eE\x00\xff')
            else:
                del data[at : at + rng.randint(1, 5)]
        path.write_bytes(data)
        try:
            read_safetensors(path)
        except EngineError:
            refused += 1
    assert refused > 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


CONFIG = {
    "model_type": "llama",
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
SHAPES = {
    "model.embed_tokens.weight": (20, 8),
    "lm_head.weight": (20, 8),
    "model.norm.weight": (8,),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.post_attention_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.k_proj.weight": (8, 8),
    "model.layers.0.self_attn.v_proj.weight": (8, 8),
    "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.mlp.gate_proj.weight": (12, 8),
    "model.layers.0.mlp.up_proj.weight": (12, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 12),
}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def values_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def write_sharded(folder: Path, shards: tuple[str, ...] = SHARDS) -> dict[str, np.ndarray]:
    """A two-shard model in the folder: every other tensor in the second shard."""
    folder.mkdir(parents=True, exist_ok=True)
    values = values_of(1)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    weight_map = {name: shards[i % 2] for i, name in enumerate(values)}
    for shard in shards:
        path = folder / shard
        path.parent.mkdir(parents=True, exist_ok=True)
        part = {name: value for name, value in values.items() if weight_map[name] == shard}
        safetensors.numpy.save_file(part, path)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return values


def edit_index(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def loaded(folder: Path) -> dict[str, np.ndarray]:
    tensors = open_checkpoint(folder).tensors
    return {name: dequantize(tensors.get(name)) for name in tensors.bound}


def test_B023_shards_are_put_together(tmp_path: Path) -> None:
    values = write_sharded(tmp_path)
    result = loaded(tmp_path)
    assert len(result) == len(values)
    assert np.array_equal(result["embedding"], values["model.embed_tokens.weight"])
    assert np.array_equal(result["0.down"], values["model.layers.0.mlp.down_proj.weight"])


def test_B023_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    (tmp_path / SHARDS[1]).unlink()
    assert f"{SHARDS[1]} does not exist" in refuse(lambda: open_checkpoint(tmp_path))


def test_B023_a_tensor_its_shard_lacks_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    edit_index(tmp_path, lambda weights: weights.update({"model.layers.7.x": SHARDS[0]}))
    assert "model.layers.7.x" in refuse(lambda: open_checkpoint(tmp_path))
    edit_index(tmp_path, lambda weights: weights.update({"model.layers.7.x": SHARDS[1]}))
    assert f"{SHARDS[1]} has no tensor 'model.layers.7.x'" in refuse(lambda: open_checkpoint(tmp_path))


def test_B023_stray_files_are_left_alone(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    before = loaded(tmp_path)
    safetensors.numpy.save_file(values_of(2), tmp_path / "extra.safetensors")
    after = loaded(tmp_path)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_tensor_in_the_wrong_shard_too_is_taken_from_the_one_the_index_names(tmp_path: Path) -> None:
    values = write_sharded(tmp_path)
    name = "model.norm.weight"
    second = {n: v for i, (n, v) in enumerate(values.items()) if i % 2} | {name: np.zeros(8, np.float32)}
    safetensors.numpy.save_file(second, tmp_path / SHARDS[1])
    assert np.array_equal(loaded(tmp_path)["norm"], values[name])


def test_a_tensor_beyond_the_index_is_not_dropped_unseen(tmp_path: Path) -> None:
    values = write_sharded(tmp_path)
    second = {n: v for i, (n, v) in enumerate(values.items()) if i % 2} | {
        "stray.bias": np.zeros(8, np.float32)
    }
    safetensors.numpy.save_file(second, tmp_path / SHARDS[1])
    assert "'stray.bias' is no part of a llama model" in refuse(lambda: open_checkpoint(tmp_path))


@pytest.mark.parametrize("missing", SHAPES)
def test_every_missing_tensor_is_named(missing: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    part = {name: value for name, value in values_of(1).items() if name != missing}
    safetensors.numpy.save_file(part, tmp_path / "model.safetensors")
    assert f"tensor '{missing}' is missing" in refuse(lambda: open_checkpoint(tmp_path))


@pytest.mark.parametrize("wrong", SHAPES)
def test_every_misshapen_tensor_is_named(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    values = values_of(1)
    values[wrong] = np.zeros((*SHAPES[wrong][:-1], 9), np.float32)
    safetensors.numpy.save_file(values, tmp_path / "model.safetensors")
    message = refuse(lambda: open_checkpoint(tmp_path))
    assert wrong in message
    assert str(SHAPES[wrong]) in message


# Reports every file the child process opens; argv: folder, then the path that must not be opened.
WATCHER = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from engine.loading.checkpoint import open_checkpoint
try:
    open_checkpoint(sys.argv[1])
    print("LOADED")
except Exception as error:
    print(type(error).__name__, error)
print("OPENED" if any(sys.argv[2] in path for path in opened) else "UNTOUCHED")
"""


def watched_load(folder: Path, outside: Path) -> list[str]:
    command = [sys.executable, "-c", WATCHER, str(folder), str(outside)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    "way", ["parent", "absolute", "through a folder", "link", "linked folder", "single link"]
)
def test_B097_entries_that_leave_the_folder_are_refused(way: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "other"
    write_sharded(folder)
    (folder / "a").mkdir()
    outside.mkdir()
    target = outside / SHARDS[1]
    (folder / SHARDS[1]).rename(target)
    entry = {
        "parent": f"../other/{SHARDS[1]}",
        "absolute": str(target),
        "through a folder": f"a/../../other/{SHARDS[1]}",
        "link": SHARDS[1],
        "linked folder": f"linked/{SHARDS[1]}",
        "single link": "model.safetensors",
    }[way]
    if way == "link":
        (folder / SHARDS[1]).symlink_to(target)
    elif way == "linked folder":
        (folder / "linked").symlink_to(outside)
    elif way == "single link":
        (folder / "model.safetensors").symlink_to(target)
    rename = {name: entry if i % 2 else SHARDS[0] for i, name in enumerate(SHAPES)}
    edit_index(folder, lambda weights: weights.update(rename))
    first, *_, last = watched_load(folder, outside)
    assert first.startswith("EngineError")
    assert entry in first
    assert last == "UNTOUCHED"


def test_B097_plain_names_and_real_sub_folders_keep_working(tmp_path: Path) -> None:
    shards = ("parts/one.safetensors", "parts/deep/two.safetensors")
    values = write_sharded(tmp_path / "model", shards)
    assert np.array_equal(loaded(tmp_path / "model")["norm"], values["model.norm.weight"])
    outcome = watched_load(tmp_path / "model", tmp_path / "model" / "parts" / "deep")
    assert outcome == ["LOADED", "OPENED"], "the watcher sees what is opened"


def test_B097_links_of_the_hub_cache_are_followed_within_their_repository(tmp_path: Path) -> None:
    """snapshots/REVISION/FILE -> ../../blobs/HASH, the layout of huggingface_hub's cache."""
    repository = tmp_path / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    values = write_sharded(snapshot)
    blobs.mkdir()
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / f"hash{number}")
        file.symlink_to(Path("../../blobs") / f"hash{number}")
    checkpoint = open_checkpoint(snapshot)
    assert checkpoint.name == "owner/name"
    assert np.array_equal(dequantize(checkpoint.tensors.get("norm")), values["model.norm.weight"])
    foreign = tmp_path / "models--owner--secret" / "blobs"
    foreign.mkdir(parents=True)
    blob = (snapshot / SHARDS[0]).resolve()
    blob.rename(foreign / "hash")
    (snapshot / SHARDS[0]).unlink()
    (snapshot / SHARDS[0]).symlink_to(foreign / "hash")
    assert SHARDS[0] in refuse(lambda: open_checkpoint(snapshot))


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_broken_indexes_are_refused(index: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "weight_map" in refuse(lambda: read_folder(Folder(tmp_path)))


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a\0b", "\ud800"])
def test_entries_that_are_no_file_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refuse(lambda: read_folder(Folder(tmp_path)))


def test_types_that_are_not_converted_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    values: dict[str, np.ndarray] = values_of(1)
    values["model.norm.weight"] = values["model.norm.weight"].astype(np.float64)
    safetensors.numpy.save_file(values, tmp_path / "model.safetensors")
    assert "'model.norm.weight' has the type F64" in refuse(lambda: open_checkpoint(tmp_path))

"""Model files as people have them: caches of the Hub, files in parts, marks of editors."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from engine import EngineError, model_name
from engine.loading.checkpoint import open_checkpoint
from engine.loading.fields import shown
from engine.loading.gguf import read_gguf, read_gguf_model
from engine.loading.tensors import CheckpointTensors
from engine.models.tensor_specs import TensorSpec
from engine.quantization import dequantize
from kernels.stored import canonical
from kernels.weights import Packed
from small_files import CONFIG, refuse, tensors, write_folder, write_gguf

HASH = "ab" * 32


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A cache with one copy of large files for all repositories: two links on the way to them."""
    hub = tmp_path / "hub"
    repository = hub / "models--a--b"
    snapshot = write_folder(repository / "snapshots" / "c0ffee")
    (hub / "blobs" / "f5").mkdir(parents=True)
    (repository / "blobs").mkdir()
    write_gguf(hub / "blobs" / "f5" / ("cd" * 32), tensors())
    (snapshot / "model.safetensors").rename(hub / "blobs" / "f5" / HASH)
    (repository / "blobs" / "etag").symlink_to(f"../../blobs/f5/{HASH}")
    (repository / "blobs" / "etag-gguf").symlink_to(f"../../blobs/f5/{'cd' * 32}")
    (snapshot / "config.json").rename(repository / "blobs" / "small")
    (snapshot / "config.json").symlink_to("../../blobs/small")
    (snapshot / "model.safetensors").symlink_to("../../blobs/etag")
    gguf_snapshot = repository / "snapshots" / "deed"
    gguf_snapshot.mkdir()
    (gguf_snapshot / "Tiny.Q8_0.gguf").symlink_to("../../blobs/etag-gguf")
    return hub


def snapshot_of(hub: Path) -> Path:
    return hub / "models--a--b" / "snapshots" / "c0ffee"


def test_N002_a_snapshot_with_two_links_on_the_way_to_its_file(hub: Path) -> None:
    checkpoint = open_checkpoint(snapshot_of(hub))
    assert checkpoint.name == model_name(snapshot_of(hub)) == "a/b"
    assert len(checkpoint.spec.layers) == 1


def test_N002_a_gguf_file_has_the_name_it_was_given_by(hub: Path) -> None:
    folder = hub / "models--a--b" / "snapshots" / "deed"
    file = folder / "Tiny.Q8_0.gguf"
    assert open_checkpoint(file).name == "Tiny.Q8_0"
    assert model_name(file) == "Tiny.Q8_0.gguf"
    assert len(open_checkpoint(folder).spec.layers) == 1
    assert model_name(folder) == "a/b"


def test_N002_a_chain_that_ends_outside_the_cache_is_refused_by_name(hub: Path) -> None:
    outside = hub.parent / "elsewhere" / HASH
    outside.parent.mkdir()
    (hub / "blobs" / "f5" / HASH).rename(outside)
    (hub / "blobs" / "f5" / HASH).symlink_to(outside)
    message = refuse(snapshot_of(hub))
    assert "'model.safetensors' is a link that leads out of the model's folder" in message
    assert HASH not in message


def test_N002_another_repository_of_the_cache_is_out_of_reach(hub: Path) -> None:
    secret = write_folder(hub / "models--a--secret" / "snapshots" / "1")
    link = snapshot_of(hub) / "model.safetensors"
    link.unlink()
    link.symlink_to(secret / "model.safetensors")
    assert "leads out" in refuse(snapshot_of(hub))


@pytest.mark.parametrize(
    "make",
    [
        lambda hub: shutil.move(hub, hub.with_name("moved")),
        lambda hub: shutil.copytree(hub, hub.with_name("copied"), symlinks=True),
        lambda hub: hub.with_name("linked").symlink_to(hub),
    ],
    ids=["moved", "copied", "linked"],
)
def test_N002_caches_anywhere(hub: Path, make: Callable[[Path], Any]) -> None:
    """HF_HUB_CACHE, a copy on another disk, a link to the cache: the structure counts, not the place."""
    make(hub)
    (found,) = [path for path in hub.parent.iterdir() if path.name in ("moved", "copied", "linked")]
    assert open_checkpoint(snapshot_of(found)).name == "a/b"


def test_N002_folders_that_are_links_themselves(hub: Path) -> None:
    link = hub.parent / "my-model"
    link.symlink_to(snapshot_of(hub))
    assert open_checkpoint(link).name == model_name(link) == "a/b"
    plain = write_folder(hub.parent / "plain")
    (hub.parent / "other-name").symlink_to(plain)
    assert open_checkpoint(hub.parent / "other-name").name == "other-name"


def test_N002_a_folder_of_links_into_a_cache(hub: Path) -> None:
    """As `download --local-dir` of older huggingface_hub versions makes them."""
    folder = hub.parent / "local"
    folder.mkdir()
    for file in snapshot_of(hub).iterdir():
        (folder / file.name).symlink_to(file.resolve())
    assert open_checkpoint(folder).name == "local"
    shutil.rmtree(hub)
    assert "does not exist; copy the folder with what its links lead to" in refuse(folder)


def test_N002_a_snapshot_copied_without_what_its_links_lead_to(hub: Path) -> None:
    copied = hub.parent / "copied"
    shutil.copytree(snapshot_of(hub), copied, symlinks=True)
    message = refuse(copied)
    assert "is a link to" in message
    assert "cp -rL" in message


@pytest.mark.parametrize("inner", ["blobs", "models--a--b/blobs", "models--a--b"])
def test_N002_folders_of_a_cache_on_another_disk(hub: Path, inner: str) -> None:
    other = hub.parent / "disk" / Path(inner).name
    other.parent.mkdir()
    (hub / inner).rename(other)
    (hub / inner).symlink_to(other)
    for link in other.iterdir() if inner != "blobs" else ():  # as those links lead on from the new place
        if link.is_symlink():
            link.unlink()
            link.symlink_to(hub / "blobs" / "f5" / (HASH if link.name == "etag" else "cd" * 32))
    if inner == "models--a--b":
        for link in (other / "blobs").iterdir():
            if link.is_symlink():
                link.unlink()
                shutil.copy(hub / "blobs" / "f5" / HASH, link)
    assert open_checkpoint(snapshot_of(hub)).name == "a/b"


def test_N002_a_file_below_a_snapshot(hub: Path) -> None:
    inner = snapshot_of(hub) / "gguf"
    inner.mkdir()
    (inner / "x.gguf").symlink_to(f"../../../../blobs/f5/{'cd' * 32}")
    assert open_checkpoint(inner).name == "x"
    assert model_name(inner) == "a/b"


def test_a_repositorys_own_folder_gets_the_way_to_its_snapshot(hub: Path) -> None:
    message = refuse(hub / "models--a--b")
    assert message.endswith(f"name its snapshot: {snapshot_of(hub)}")


def test_a_link_that_leads_nowhere_and_one_that_leads_in_a_circle(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "generation_config.json").symlink_to("gone.json")
    assert "'generation_config.json' is a link to" in refuse(folder)
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").symlink_to("generation_config.json")
    assert "generation_config.json" in refuse(folder)


def split(folder: Path, count: int = 3) -> list[Path]:
    """A model in parts, as gguf-split makes them."""
    folder.mkdir()
    whole = list(tensors().items())
    paths = [folder / f"tiny-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
    for index, path in enumerate(paths):
        mine = dict(whole[index::count])
        write_gguf(path, mine, index == 0, split_no=index, split_count=count, split_tensors_count=len(whole))
    return paths


def test_split_files_load_by_any_of_their_parts(tmp_path: Path) -> None:
    one = write_gguf(tmp_path / "one.gguf", tensors())
    paths = split(tmp_path / "parts")
    expected = open_checkpoint(one)
    for path in (*paths, tmp_path / "parts"):
        checkpoint = open_checkpoint(path)
        assert checkpoint.name == "tiny"
        for name in expected.tensors.bound:
            ours, theirs = checkpoint.tensors.get(name), expected.tensors.get(name)
            assert ours is not None
            assert theirs is not None
            assert np.array_equal(dequantize(ours), dequantize(theirs))


def test_split_files_that_lack_a_part_or_lost_their_name(tmp_path: Path) -> None:
    paths = split(tmp_path / "parts")
    paths[0].rename(tmp_path / "hidden")
    message = refuse(paths[1])
    assert "this is part 2 of 3, and part 1 ('tiny-00001-of-00003.gguf') is not beside it" in message
    (tmp_path / "hidden").rename(paths[0])
    renamed = paths[2].rename(tmp_path / "parts" / "x.gguf")
    assert "its name must end in -00003-of-00003.gguf" in refuse(renamed)
    renamed.rename(paths[2])
    paths[1].write_bytes(paths[2].read_bytes())
    assert "this is not part 2 of 3" in refuse(paths[0])
    write_gguf(paths[1], {}, False, split_no=1, split_count=3)
    assert "tensors" in refuse(paths[0])


def test_a_whole_file_that_kept_the_keys_of_a_part_is_whole(tmp_path: Path) -> None:
    """Programs that quantize a model in parts write one file, and leave them in it."""
    keys = {"split_no": 0, "split_count": 3, "split_tensors_count": len(tensors())}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors(), **keys))
    assert len(checkpoint.tensors.bound) == len(
        open_checkpoint(write_gguf(tmp_path / "n.gguf", tensors())).tensors.bound
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("m.gguf.part1of2", "m.gguf.part2of2"),
        ("M.GGUF-split-a", "M.GGUF-split-b"),
        ("m.gguf.001", "m.gguf.002"),
    ],
)
def test_a_piece_of_a_file_is_told_from_a_broken_download(tmp_path: Path, first: str, second: str) -> None:
    data = write_gguf(tmp_path / "whole.gguf", tensors()).read_bytes()
    (tmp_path / first).write_bytes(data[:-100])
    (tmp_path / second).write_bytes(data[-100:])
    for name in (first, second):
        message = refuse(tmp_path / name)
        assert f"it is a piece of {name[:6]}: join all pieces in their order" in message
        assert "again" not in message


def test_split_files_of_hostile_numbers(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-00001-of-60000.gguf", tensors(), split_no=0, split_count=60000)
    assert "split.count is 60000" in refuse(path)
    path = write_gguf(tmp_path / "m-00001-of-00002.gguf", tensors(), split_no=7, split_count=2)
    assert "split.no must be in [0, 1], not 7" in refuse(path)
    path = write_gguf(tmp_path / "m-00002-of-00002.gguf", tensors(), split_no=1, split_count=2)
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    (tmp_path / "m-00001-of-00002.gguf").symlink_to("/dev/zero")
    assert "not a regular file" in refuse(path)


def test_unsupported_models_are_refused_by_their_name_before_their_types(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"x": np.ones((2, 32), np.float32)})
    data = path.read_bytes()
    number = data.index(b"x" + (2).to_bytes(4, "little")) + 1 + 4 + 16
    assert data[number : number + 4] == b"\0\0\0\0"
    unknown = data[:number] + (15).to_bytes(4, "little") + data[number + 4 :]
    path.write_bytes(unknown)
    assert "tensor 'x' has the type number 15 (Q8_K), which is not supported" in refuse(path)
    path.write_bytes(unknown.replace(b"llama", b"lamma"))
    assert "general.architecture 'lamma' is not supported" in refuse(path)


def test_a_safetensors_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    entry = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    header = f'{{"model.norm.weight": {entry}, "model.norm.weight": {entry}}}'.encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "a key stands twice: 'model.norm.weight'" in refuse(folder)


JSON_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "model.safetensors.index.json",
]


@pytest.mark.parametrize("name", JSON_FILES)
def test_N019_byte_order_marks_in_front_of_a_models_files(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"temperature": 0.25}')
    (folder / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    if name.endswith("index.json"):
        names = safetensors.numpy.load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        weight_map = dict.fromkeys(names, "part.safetensors")
        (folder / name).write_text(json.dumps({"weight_map": weight_map}))
    text = (folder / name).read_text()
    (folder / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    checkpoint = open_checkpoint(folder)
    assert checkpoint.generation.defaults["temperature"] == 0.25
    assert checkpoint.generation.chat_template == "x"
    for encoding in ("utf-16", "utf-16-be", "utf-32", "utf-16-le"):
        (folder / name).write_text(f"\ufeff{text}" if encoding.endswith("e") else text, encoding)
        assert f"{name}: it is not valid JSON: it is UTF-16 or UTF-32 text; save" in refuse(folder)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("field", ["factor", "rope_theta", "attention_factor"])
def test_scales_of_no_sense_are_refused_by_name(tmp_path: Path, field: str, number: float) -> None:
    folder = write_folder(tmp_path / "m")
    scaling = {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.0, "rope_theta": 1e4} | {
        field: number
    }
    (folder / "config.json").write_text(json.dumps(CONFIG | {"rope_parameters": scaling}))
    assert f"rope_parameters.{field} must be in [" in refuse(folder)


def test_a_file_that_the_system_has_no_room_to_map_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tensors())

    def refuse_all(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("engine.loading.files.mmap.mmap", refuse_all)
    with pytest.raises(EngineError, match=r"m\.gguf does not fit: no memory for the .* bytes of") as error:
        read_gguf(path)
    assert error.value.code == "out_of_memory"


def test_what_is_quoted_is_short_and_printable(tmp_path: Path) -> None:
    assert shown("\x1b[31m" * 1000) == repr("\x1b[31m" * 1000)[:57] + "..."
    assert shown(10**5000) == "a number of too many digits"
    folder = write_folder(tmp_path / "evil\x1b]0;x\x07\u202e")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "\x1b[31m" * 10_000}))
    message = refuse(folder)
    assert "evil\\x1b]0;x\\x07\\u202e" in message
    assert len(message) < 600 + len(str(folder))


def test_a_model_read_whole_and_in_parts_has_no_metadata_of_parts(tmp_path: Path) -> None:
    paths = split(tmp_path / "parts", 2)
    assert "split.count" in read_gguf(paths[0]).metadata
    assert not any(key.startswith("split.") for key in read_gguf_model(paths[1]).metadata)


def resident_of(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory, in KiB."""
    found, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            found = line.endswith(str(path))
        elif found and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no smaps here")
@pytest.mark.parametrize("kind", ["Q6_K", "Q8_0"])
def test_a_converted_tensor_does_not_stay_in_memory_as_it_was_stored(tmp_path: Path, kind: str) -> None:
    values = {"token_embd.weight": np.ones((4096, 256), np.float32)}
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    type = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("x", np.zeros(100, np.float32))
    data = gguf.quants.quantize(values["token_embd.weight"], gguf.GGMLQuantizationType.Q8_0)
    if kind == "Q6_K":
        data = np.full((4096, 210), 1, np.uint8)
        data[:, 208:] = np.float16(0.01).reshape(1).view(np.uint8)
    writer.add_tensor("token_embd.weight", data, raw_dtype=type)
    writer.add_tensor("y", np.arange(100, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(path)
    spec = TensorSpec("embedding", "embedding", "token_embd.weight", (4096, 256), 0, 4096)
    tensors = CheckpointTensors(path, "auto", {"embedding": (spec, file.tensors["token_embd.weight"])})
    weights = tensors.get("embedding"), tensors.get("embedding")
    first, again = (canonical(weight) for weight in weights if weight is not None)
    assert isinstance(first, Packed)
    assert isinstance(again, Packed)
    assert (first.codes == again.codes).all()
    if kind == "Q6_K":
        assert resident_of(path) < 64
    else:  # a system that is short of memory may take some back while it is looked at
        assert any(again.codes.any() and resident_of(path) >= 64 for _ in range(50))
    assert file.tensors["y"].data.view(np.float32)[99] == 99

"""Files that people take for a model: what they are is said, and what to do."""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.loading.recognized import binary_kind, kind_of
from engine.types import EngineError
from kernels.weights import Plain
from small_files import refuse, tensors, write_folder, write_gguf


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x" * 100)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.gguf"))
    return buffer.getvalue()


def gzipped() -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(b"x" * 100) + packer.flush()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"

WRONG = {
    "nothing": (b"", "it is empty (0 bytes)"),
    "set aside": (bytes(100_000), "it is all zeros at its beginning; a download that has not ended looks so"),
    "pointer": (POINTER, "it is a Git LFS pointer, not the file it stands for; get that with: git lfs pull"),
    "page": (b"\xef\xbb\xbf\n<!DOCTYPE HTML><html>", "it is a web page; download the file itself"),
    "answer": (b'<?xml version="1.0"?><Error/>', "it is an XML text, as servers answer with"),
    "json": (b'{"error": "Repository not found"}', "it is a JSON text"),
    "gzip": (gzipped(), "it is a gzip archive; unpack it first"),
    "zip": (zipped("model.gguf"), "it is a ZIP archive; unpack it first"),
    "tar": (tarred(), "it is a tar archive; unpack it first"),
    "torch": (zipped("model/data.pkl"), "it is an archive with a pickle in it; pickle files are not loaded"),
    "pickle": (b"\x80\x02}q\0X\x05" + bytes(40), "it is a pickle; pickle files are not loaded"),
    "ggml": (b"lmgg" + bytes(range(40)), "it is a file of ggml's older formats"),
    "ggjt": (b"tjgg" + bytes(range(40)), "it is a file of ggml's older formats"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "it is a PDF document"),
    "short": (b"\xf0\x01\x02", "it ends after 3 bytes; download it again"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_gguf_file_is_said_to_be_what_it_is(tmp_path: Path, name: str) -> None:
    data, said = WRONG[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    message = refuse(path)
    assert message.startswith(f"{path} is not a GGUF file: ")
    assert said in message


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_safetensors_file_is_said_to_be_what_it_is(tmp_path: Path, name: str) -> None:
    data, said = WRONG[name]
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(data)
    message = refuse(folder)
    assert " is not a safetensors file: " in message
    assert said in message


def test_of_what_nobody_knows_nothing_is_said(tmp_path: Path) -> None:
    for data in (b"FROM ./x.gguf\nPARAMETER temperature 0\n", bytes(range(1, 200))):
        (tmp_path / "m.gguf").write_bytes(data)
        assert refuse(tmp_path / "m.gguf").endswith("is not a GGUF file")


def test_each_of_the_two_formats_by_the_others_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    gguf = write_gguf(tmp_path / "g", tensors())
    assert "it is a safetensors file" in refuse((folder / "model.safetensors").rename(tmp_path / "s.gguf"))
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    assert "it is a GGUF file" in refuse(folder)


def test_a_file_is_what_it_holds_whatever_it_is_called(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "pytorch_model.bin", tensors())
    assert len(open_checkpoint(path).spec.layers) == 1
    path.write_bytes(POINTER)
    assert "git lfs pull" in refuse(path)


def add(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        for name in names:
            (folder / name).write_bytes(b"\xf0\xf1")

    return change


FOLDERS = {
    "adapter": (add("adapter_config.json", "adapter_model.safetensors"), "it is a LoRA adapter; merge it"),
    "shards": (
        add("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        "model-00001-of-00002.safetensors is there without model.safetensors.index.json",
    ),
    "mistral": (add("consolidated.safetensors", "params.json"), "in Mistral's own form"),
    "renamed": (add("w.safetensors"), "w.safetensors would have to be called model.safetensors"),
    "unfinished": (
        add("model.safetensors.incomplete"),
        "of model.safetensors.incomplete has not ended",
    ),
    "aria2": (add("model.gguf.aria2"), "the download of model.gguf.aria2 has not ended"),
    "openvino": (add("openvino_model.xml", "openvino_model.bin"), "it is for OpenVINO"),
    "diffusers": (add("diffusion_pytorch_model.safetensors"), "it makes pictures or videos (diffusers)"),
    "pipeline": (add("model_index.json"), "it makes pictures or videos (diffusers)"),
    "onnx": (add("model.onnx"), "model.onnx is for ONNX"),
    "pickles": (add("pytorch_model.bin"), "pickle files are not loaded"),
    "weights only elsewhere": (
        add(),
        "holds no model.safetensors, model.safetensors.index.json or GGUF file",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_without_a_model_is_said_to_be_what_it_is(tmp_path: Path, name: str) -> None:
    change, said = FOLDERS[name]
    folder = write_folder(tmp_path / "m")
    change(folder)
    assert said in refuse(folder)


@pytest.mark.parametrize("form", ["gguf", "safetensors"])
def test_a_file_of_full_size_whose_end_has_not_come(tmp_path: Path, form: str) -> None:
    """As programs leave it that set a file's space aside before they download it in pieces."""
    if form == "gguf":
        values = tensors()
        path = write_gguf(tmp_path / "m.gguf", values | {"output_norm.weight": np.zeros(32, np.float32)})
        name, key = "norm", "output_norm.weight"
    else:
        path = write_folder(tmp_path / "m")
        values = safetensors.numpy.load_file(path / "model.safetensors")
        key = "model.layers.0.input_layernorm.weight"
        safetensors.numpy.save_file(values | {key: np.zeros(32, np.float32)}, path / "model.safetensors")
        name = "0.attention_norm"
    weights = open_checkpoint(path).tensors
    with pytest.raises(EngineError, match=f"tensor '{key}' is all zeros: .*not all of it has come"):
        weights.get(name)


def test_zeros_of_a_family_that_stores_its_norms_less_one_are_ones(tmp_path: Path) -> None:
    """Gemma's safetensors: a norm that does nothing is stored as zeros."""
    path = write_folder(tmp_path / "m")
    values = safetensors.numpy.load_file(path / "model.safetensors")
    key = "model.layers.0.input_layernorm.weight"
    safetensors.numpy.save_file(values | {key: np.zeros(32, np.float32)}, path / "model.safetensors")
    weights = open_checkpoint(path).tensors
    spec, tensor = weights.bound["0.attention_norm"]
    bound = {**weights.bound, "0.attention_norm": (spec._replace(offset=1.0), tensor)}
    vector = weights._replace(bound=bound).get("0.attention_norm")
    assert isinstance(vector, Plain)
    assert vector.values.tolist() == [1.0] * 32


def test_a_text_is_no_picture_for_beginning_like_one() -> None:
    for text in (
        "GIF8 is how such files begin",
        "BZh!",
        "Rar!",
        "ID3 tags",
        "RIFF",
        "{}",
        "<html>",
        "%PDF files",
        "%PDF-1.4 is what such files begin with",
        "%PDF-1.4\n\nMy notes on the format",
    ):
        assert binary_kind(text.encode()) is None, text
    cut = "GIF8 ä".encode()[:-1]
    assert binary_kind(cut) is None
    for data in (
        gzipped(),
        zipped("word/document.xml"),
        b"%PDF-1.4\n1 0 obj",
        b"\x89PNG\r\n\x1a\n\0\0",
        b"GIF8\0\1",
    ):
        assert binary_kind(data) is not None
    assert binary_kind(bytes(100)) is None  # nobody knows what that is
    found = kind_of(zipped("word/document.xml"))
    assert found is not None
    assert found.noun == "an Office document"


@pytest.mark.parametrize("name", ["pointer", "page", "answer", "gzip", "zip", "pdf"])
def test_json_files_that_are_something_else_are_said_to_be_what_they_are(tmp_path: Path, name: str) -> None:
    data, said = WRONG[name]
    folder = write_folder(tmp_path / "m")
    (folder / "config.json").write_bytes(data)
    assert f"config.json: it is not valid JSON: {said[:20]}" in refuse(folder)


def test_a_json_file_of_a_model_gets_the_advice_to_give_the_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    for name in ("config.json", "tokenizer.json"):
        assert refuse(folder / name).endswith(f"{name} is one file of a model; give the folder it lies in")


def test_what_is_no_file_or_hidden_is_not_counted_among_gguf_files(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tensors())
    (tmp_path / "._m.gguf").write_bytes(b"\0\5\x16\7")
    (tmp_path / "n.gguf").mkdir()
    assert open_checkpoint(tmp_path).path == tmp_path / "m.gguf"


@pytest.mark.parametrize("name", ["~", "~nobody-of-this-name.gguf", "~nobody-of-this-name/m.gguf", "~\0"])
def test_names_with_a_tilde_that_are_nobodys_are_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(EngineError):
        open_checkpoint(name)
    if "\0" not in name and name != "~":
        Path(name).parent.mkdir(exist_ok=True)
        write_gguf(Path(name), tensors())
        assert open_checkpoint(name).path == Path(name)

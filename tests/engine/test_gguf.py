"""The GGUF header reader: what it returns, and what it refuses of broken and hostile files."""

import os
import random
import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from engine.loading.gguf import read_gguf
from engine.loading.gguf_cursor import MAX_ITEMS
from engine.types import EngineError

U32, STRING, ARRAY, BOOL, U64, F32 = 4, 8, 9, 7, 10, 6


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str, dims: tuple[int, ...], offset: int, kind: int = 0, n_dims: int | None = None) -> bytes:
    count = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def header(tensors: int, keys: int, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys)


def padded(data: bytes, alignment: int = 32) -> bytes:
    return data + bytes(-len(data) % alignment)


def small_file() -> bytes:
    """Every kind of value, three tensors."""
    keys = [
        pair("general.architecture", STRING, string("llama")),
        pair("a.number", U32, struct.pack("<I", 7)),
        pair("a.float", F32, struct.pack("<f", 0.5)),
        pair("a.big", U64, struct.pack("<Q", 2**63)),
        pair("a.bool", BOOL, b"\x01"),
        pair("a.bools", ARRAY, array(BOOL, 3, b"\x01\x00\x02")),
        pair("a.words", ARRAY, array(STRING, 3, string("x") + string("") + string("\u00e9\U0001fae0"))),
        pair("a.bad", STRING, string(b"caf\xe9")),
        pair("a.numbers", ARRAY, array(5, 4, struct.pack("<4i", 1, -2, 3, -4))),
        pair(
            "a.nested",
            ARRAY,
            array(ARRAY, 2, array(U32, 1, struct.pack("<I", 1)) + array(STRING, 1, string("y"))),
        ),
    ]
    tensors = [tensor("one", (4,), 0), tensor("two", (32, 3), 32, 3), tensor("three", (2, 3, 1, 2), 96, 1)]
    head = padded(header(len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors))
    data = padded(struct.pack("<4f", 1, 2, 3, 4)) + padded(bytes(range(60))) + bytes(24)
    return head + data


def refuse(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(EngineError) as caught:
        read_gguf(path)
    assert caught.value.code == "model_invalid"
    message = caught.value.message
    assert str(path) in message
    assert "\n" not in message
    return message


def test_every_kind_of_value(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(small_file())
    file = read_gguf(path)
    assert file.version == 3
    values = file.metadata
    assert values["general.architecture"] == "llama"
    assert (values["a.number"], values["a.float"], values["a.big"]) == (7, 0.5, 2**63)
    assert type(values["a.number"]) is int
    assert values["a.bool"] is True
    assert values["a.bools"].tolist() == [True, False, True]
    assert values["a.words"] == ["x", "", "\u00e9\U0001fae0"]
    assert values["a.bad"] == "caf\ufffd"
    assert values["a.numbers"].tolist() == [1, -2, 3, -4]
    assert values["a.nested"][0].tolist() == [1]
    assert values["a.nested"][1] == ["y"]
    assert [(t.name, t.shape, t.type) for t in file.tensors.values()] == [
        ("one", (4,), "F32"),
        ("two", (3, 32), "Q4_1"),
        ("three", (2, 1, 3, 2), "F16"),
    ]
    assert file.tensors["one"].data.view(np.float32).tolist() == [1, 2, 3, 4]
    assert file.tensors["two"].data.tolist() == list(range(60))


def test_strings_of_any_length_and_content(tmp_path: Path) -> None:
    """Short ones are read many at a time, long ones and those with zero bytes one by one."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    special = [b"", b"\0", b"x\0", b"\0x", bytes(8), b"a" * 255, b"a" * 256, b"a" * 511, b"a" * 70_000]
    path = tmp_path / "m.gguf"
    for count, rare in ((1, 0.5), (9, 0.5), (300, 0.0), (4096, 0.0), (4097, 0.0), (9000, 0.0003)):
        texts = [
            rng.choice(special)
            if rng.random() < rare
            else rng.randbytes(rng.randrange(1, 9)).replace(b"\0", b"0")
            for _ in range(count)
        ]
        keys = [
            pair("a.words", ARRAY, array(STRING, count, b"".join(map(string, texts)))),
            pair("a.bool", BOOL, b"\x01"),
        ]
        path.write_bytes(padded(header(0, len(keys)) + b"".join(keys)))
        expected = [text.decode("utf-8", "replace") for text in texts]
        assert read_gguf(path).metadata == {"a.words": expected, "a.bool": True}, seed


def test_version_2_and_other_alignments_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for alignment in (1, 8, 64):
        key = pair("general.alignment", U32, struct.pack("<I", alignment))
        body = header(1, 1, version=2) + key + tensor("t", (2,), 0)
        path.write_bytes(padded(body, alignment) + struct.pack("<2f", 1, 2))
        assert read_gguf(path).tensors["t"].data.view("<f4").tolist() == [1, 2]


def test_the_file_gguf_writer_makes_is_read(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("words", ["a", "b"])
    writer.add_array("ids", [1, 2, 3])
    writer.add_float32("pi", 3.5)
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    writer.add_tensor("plain", values)
    writer.add_tensor(
        "packed",
        gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0),
        raw_dtype=gguf.GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(path)
    assert file.metadata["words"] == ["a", "b"]
    assert file.metadata["ids"].tolist() == [1, 2, 3]
    assert np.array_equal(file.tensors["plain"].data.view(np.float32).reshape(2, 32), values)
    assert (file.tensors["packed"].shape, file.tensors["packed"].type) == ((2, 32), "Q8_0")


def test_facts_of_the_default_model(default_model: Path) -> None:
    file = read_gguf(default_model)
    assert file.version == 3
    types = [t.type for t in file.tensors.values()]
    assert (len(types), types.count("Q4_1"), types.count("F32"), types.count("Q8_0")) == (272, 210, 61, 1)
    assert file.tensors["token_embd.weight"].type == "Q8_0"
    assert "output.weight" not in file.tensors
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
    assert len(file.metadata["tokenizer.ggml.merges"]) == 48900
    assert file.metadata["tokenizer.ggml.tokens"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert file.metadata["llama.rope.freq_base"] == 100000.0


HOSTILE = {
    "tensor count": (header(2**40, 0), "number of tensors is 1099511627776"),
    "key count": (header(0, 2**40), "number of metadata keys is 1099511627776"),
    "zero dimension": (header(1, 0) + tensor("x", (1, 0), 0), "'x' has a zero dimension"),
    "n_dims": (header(1, 0) + tensor("x", (1,), 0, n_dims=0xFFFFFFFF) + bytes(40), "4294967295 dimensions"),
    "n_dims at the end": (header(1, 0) + string("x") + b"\xff" * 4, "4294967295 dimensions"),
    "no dims": (header(1, 0) + tensor("x", (), 0) + bytes(40), "0 dimensions"),
    "product": (header(1, 0) + tensor("x", (2**32, 2**32, 2), 0), "whose product exceeds 2^63"),
    "wraps to zero": (header(1, 0) + tensor("x", (2**32, 2**32), 0), "whose product exceeds 2^63"),
    "rows": (header(1, 0) + tensor("x", (33, 2), 0, 3) + bytes(99), "multiple of 32 values, not 33"),
    "type": (header(1, 0) + tensor("x", (32,), 0, 4) + bytes(99), "type number 4,"),
    "offset": (header(1, 0) + tensor("x", (1,), 7) + bytes(99), "offset 7, not a multiple of 32"),
    "far offset": (header(1, 0) + tensor("x", (1,), 2**62), "incomplete"),
    "key length": (header(0, 1) + struct.pack("<Q", 2**60) + bytes(40), "metadata key 0 claims"),
    "string length": (
        header(0, 1) + string("k") + struct.pack("<IQ", STRING, 2**50) + bytes(40),
        "'k' claims 1125899906842624 bytes",
    ),
    "short string": (header(0, 1) + string("k") + struct.pack("<IQ", STRING, 99), "'k' needs 99 bytes but 0"),
    "string count": (
        header(0, 1) + pair("k", ARRAY, array(STRING, 2**58, bytes(64))),
        "length of 'k' is 288230376151711744",
    ),
    "string in array": (
        header(0, 1) + pair("k", ARRAY, array(STRING, 2, string("a") + struct.pack("<Q", 2**63))),
        "'k'[1] claims",
    ),
    "number count": (
        header(0, 1) + pair("k", ARRAY, array(U64, 2**61, bytes(64))),
        "'k' (2305843009213693952",
    ),
    "nesting": (header(0, 1) + string("k") + struct.pack("<I", ARRAY) + array(ARRAY, 1, b"") * 99, "nested"),
    "value type": (header(0, 1) + pair("k", 13, bytes(40)), "'k' has the unknown value type 13"),
    "element type": (header(0, 1) + pair("k", ARRAY, array(99, 1, bytes(40))), "unknown value type 99"),
    "alignment 0": (header(0, 1) + pair("general.alignment", U32, bytes(4)), "'general.alignment' is 0"),
    "alignment 3": (header(0, 1) + pair("general.alignment", U32, b"\3\0\0\0"), "'general.alignment' is 3"),
    "alignment type": (
        header(0, 1) + pair("general.alignment", STRING, string("32")),
        "'general.alignment' is '32'",
    ),
    "key twice": (header(0, 2) + pair("k", BOOL, b"\1") * 2, "key 'k' stands twice"),
    "tensor twice": (
        header(2, 0) + tensor("x", (1,), 0) + tensor("x", (1,), 32) + bytes(99),
        "'x' stands twice",
    ),
    "overlap": (
        padded(header(2, 0) + tensor("x", (16,), 0) + tensor("y", (1,), 32)) + bytes(99),
        "'x' and 'y' overlap",
    ),
    "key not UTF-8": (
        header(0, 1) + string(b"\xff") + struct.pack("<IB", BOOL, 1) + bytes(9),
        "not valid UTF-8",
    ),
    "version 1": (header(0, 0, version=1), "version 1 is not supported"),
    "version 4": (header(0, 0, version=4), "version 4 is not supported"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "magic only": (b"GGUF", "the version needs 4 bytes"),
}


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("kind", HOSTILE)
def test_B019_hostile_headers_are_refused(kind: str, tmp_path: Path) -> None:
    data, field = HOSTILE[kind]
    before = peak_kib()
    message = refuse(tmp_path / "m.gguf", data)
    assert field in message
    assert peak_kib() - before < 100 * 1024


def test_B019_more_entries_than_any_model_has_are_refused(tmp_path: Path) -> None:
    """A file of zeros can claim an empty string every 8 bytes."""
    data = header(0, 1) + pair("k", ARRAY, array(STRING, MAX_ITEMS, bytes(8 * MAX_ITEMS)))
    assert "a header may hold" in refuse(tmp_path / "m.gguf", data)


def test_B021_files_that_are_no_gguf(tmp_path: Path) -> None:
    page = b"<!DOCTYPE html><html><body>404</body></html>" * 30
    for data in (b"", b"GGU", page):
        assert "is not a GGUF file" in refuse(tmp_path / "m.gguf", data)
    for path in (tmp_path / "absent.gguf", tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(EngineError, match=str(path)):
            read_gguf(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    os.mkfifo(path)
    with pytest.raises(EngineError, match="not a regular file"):
        read_gguf(path)


@pytest.mark.slow
def test_B021_truncated_default_model(default_model: Path, tmp_path: Path) -> None:
    whole = default_model.read_bytes()
    assert len(whole) == 98_362_432
    message = refuse(tmp_path / "half.gguf", whole[:50_000_000])
    assert "98362432 bytes are needed and 50000000 are present" in message
    assert "'blk.16.ffn_down.weight'" in message
    message = refuse(tmp_path / "almost.gguf", whole[:-1])
    assert "98362432 bytes are needed and 98362431 are present" in message
    message = refuse(tmp_path / "header.gguf", whole[:1_000_000])
    assert "'tokenizer.ggml.merges'" in message
    assert "1000000" in message


def test_every_truncation_of_a_small_file_is_refused(tmp_path: Path) -> None:
    whole = small_file()
    for size in range(len(whole)):
        refuse(tmp_path / "m.gguf", whole[:size])


def mutations(whole: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, inserted, removed, or 8 bytes set to an extreme number."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                data[at : at + 8] = struct.pack(
                    "<Q", rng.choice((0, 1, 2**31, 2**32, 2**40, 2**63, 2**64 - 1))
                )
            case 3:
                del data[at : at + rng.randint(1, 9)]
            case _:
                data[at:at] = rng.randbytes(rng.randint(1, 9))
    return bytes(data)


@pytest.mark.slow
def test_B019_mutated_headers_load_or_are_refused(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole, path = small_file(), tmp_path / "m.gguf"
    messages = []
    before = peak_kib()
    for _ in range(3000):
        path.write_bytes(mutations(whole, rng))
        try:
            read_gguf(path)
        except EngineError as error:
            messages.append(error.message)
    assert peak_kib() - before < 100 * 1024
    assert 500 < len(messages) < 2900, "some load, most are refused"
    assert not any("\n" in message for message in messages)

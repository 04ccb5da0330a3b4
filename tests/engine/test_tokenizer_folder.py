"""Tokenizers of model folders, against Hugging Face transformers reading the same files."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline
from transformers import PreTrainedTokenizerFast

from engine.loading.gguf import read_gguf
from engine.tokenization import encode_chat, load_tokenizer
from engine.types import EngineError, Message

SEED = 8
CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
TEMPLATE = (
    "{{ bos_token }}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write(folder: Path, pipeline: Pipeline, **files: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    pipeline.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def special(text: str, **more: bool) -> AddedToken:
    return AddedToken(text, special=True, normalized=False, **more)


@pytest.fixture(scope="module")
def byte_level(default_model: Path) -> Pipeline:
    """The default model's vocabulary as the tokenizer.json of its family has it."""
    metadata = read_gguf(default_model).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    pipeline = Pipeline(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens([special(token) for token in tokens[:17]])
    pipeline.add_tokens([AddedToken("<tool>", normalized=False)])
    return pipeline


def sentencepiece(*, scheme: str | None = None, normalizer: bool = False) -> Pipeline:
    """A pipeline like those of Llama 2 and Mistral, with either way to put a space in front."""
    pieces = ["<unk>", *CONTROL, *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = list("▁abcdefgh\n<>|_imnsr/")
    merges = [("▁", "a"), ("b", "c"), ("▁a", "bc"), ("d", "e"), ("▁", "▁")]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, *letters, *(a + b for a, b in merges)])}
    pipeline = Pipeline(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        pipeline.normalizer = normalizers.Sequence(steps)
    else:
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    pipeline.decoder = decoders.Sequence(steps)
    pipeline.add_special_tokens([special(token) for token in ["<unk>", *CONTROL]])
    pipeline.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return pipeline


def random_text(rng: random.Random, parts: list[str]) -> str:
    return "".join(rng.choices(parts, k=rng.randint(1, 12)))


@pytest.mark.slow
def test_byte_level_as_transformers_reads_it(tmp_path: Path, byte_level: Pipeline):
    config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    folder = write(
        tmp_path / "m", byte_level, tokenizer_config=config, generation_config={"eos_token_id": [2, 0]}
    )
    tokenizer = load_tokenizer(folder)
    oracle = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    rng = random.Random(SEED)
    parts = [
        "<|im_start|>",
        "<|im_end|>",
        "Hello",
        " world",
        "123",
        "\n",
        "é漢🙂",
        "  ",
        "<tool>",
        "<|im_",
        "'s",
    ]
    for case in range(300):
        text = random_text(rng, parts)
        ids = oracle.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == ids, (SEED, case, text)
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text, (SEED, case)
        assert tokenizer.decode(ids) == oracle.decode(ids, skip_special_tokens=True), (SEED, case, text)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, False)
    assert tokenizer.end_ids == {0, 2}
    assert tokenizer.vocab_size == 49153


@pytest.mark.slow
def test_same_tokens_as_the_gguf_file(tmp_path: Path, byte_level: Pipeline, default_model: Path):
    tokenizer, gguf = load_tokenizer(write(tmp_path / "m", byte_level)), load_tokenizer(default_model)
    text = "<|im_start|>user\nSay 42 things: naïve café, 日本語 🫠\n\n    indented<|im_end|>"
    assert tokenizer.encode(text) == gguf.encode(text)
    assert [tokenizer.token_bytes(i) for i in range(49152)] == [gguf.token_bytes(i) for i in range(49152)]


@pytest.mark.parametrize(
    "options", [{"scheme": "first"}, {"scheme": "always"}, {"scheme": "never"}, {"normalizer": True}]
)
def test_sentencepiece_as_transformers_reads_it(tmp_path: Path, options: dict[str, Any]):
    folder = write(tmp_path / "m", sentencepiece(**options))
    tokenizer = load_tokenizer(folder)
    oracle = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    rng = random.Random(SEED)
    parts = ["<|im_start|>", "<|im_end|>", "</s>", "abc", " a", "bc", " ", "  ", "\n", "de", "é🙂"]
    for case in range(300):
        text = random_text(rng, parts)
        assert tokenizer.encode(text) == oracle.encode(text, add_special_tokens=False), (SEED, case, text)


def test_sentencepiece_text_keeps_its_spaces_around_typed_control_tokens(tmp_path: Path):
    tokenizer = load_tokenizer(write(tmp_path / "m", sentencepiece(scheme="first")))
    assert tokenizer.decode(tokenizer.encode("abc</s>abc", special=False)) == " abc</s>abc"


def test_chat_as_transformers_renders_and_encodes_it(tmp_path: Path, byte_level: Pipeline):
    config = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    folder = write(tmp_path / "m", byte_level, tokenizer_config=config)
    tokenizer = load_tokenizer(folder)
    oracle = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|endoftext|>", chat_template=TEMPLATE
    )
    messages = [Message("system", "Be brief."), Message("user", "  Two\n\nlines "), Message("assistant", "é")]
    plain = [{"role": m.role, "content": m.content} for m in messages]
    expected = oracle.apply_chat_template(plain, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert encode_chat(tokenizer, None, messages) == expected


@pytest.mark.parametrize(
    ("files", "bos_id", "add_bos"),
    [
        ({"tokenizer_config": {"bos_token": "<s>"}}, 1, True),  # as the library itself does
        ({"tokenizer_config": {"bos_token": "<s>", "add_bos_token": False}}, 1, False),
        ({"config": {"bos_token_id": 1}}, 1, True),
        ({"tokenizer_config": {"bos_token": None}, "config": {"bos_token_id": 1}}, None, False),
    ],
)
def test_B013_start_token(tmp_path: Path, files: dict[str, Any], bos_id: int | None, add_bos: bool):
    tokenizer = load_tokenizer(write(tmp_path / "m", sentencepiece(normalizer=True), **files))
    assert (tokenizer.bos_id, tokenizer.add_bos) == (bos_id, add_bos)
    assert tokenizer.encode("abc").count(1) == add_bos
    assert tokenizer.encode("<s>abc").count(1) == 1


def test_B011_end_tokens_from_every_file(tmp_path: Path):
    files = {
        "tokenizer_config": {"eos_token": "<|im_start|>"},
        "generation_config": {"eos_token_id": [5, 100]},
        "config": {"eos_token_id": 7},
    }
    tokenizer = load_tokenizer(write(tmp_path / "m", sentencepiece(normalizer=True), **files))
    assert tokenizer.eos_id == 3
    assert tokenizer.end_ids == {2, 3, 4, 5, 7, 100}  # </s> and <|im_end|> by their names


def test_white_space_that_control_tokens_swallow(tmp_path: Path):
    pipeline = sentencepiece(scheme="never")
    pipeline.add_special_tokens([special("<l>", lstrip=True), special("<r>", rstrip=True)])
    folder = write(tmp_path / "m", pipeline)
    tokenizer = load_tokenizer(folder)
    oracle = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for text in ["a  <l> b", "a <r>  b", "a <r> <l> b", "<l><r>", " <r>\n<r> "]:
        assert tokenizer.encode(text) == oracle.encode(text, add_special_tokens=False), text


@pytest.mark.slow
def test_truncation_and_padding_in_the_file_are_off(tmp_path: Path, byte_level: Pipeline):
    pipeline = Pipeline.from_str(byte_level.to_str())
    pipeline.enable_truncation(4)
    pipeline.enable_padding(length=8)
    tokenizer = load_tokenizer(write(tmp_path / "m", pipeline))
    assert (
        tokenizer.encode("One two three four five six")
        == byte_level.encode("One two three four five six").ids
    )
    assert len(tokenizer.encode("a")) == 1


def test_template_of_its_own_file(tmp_path: Path):
    folder = write(tmp_path / "m", sentencepiece(normalizer=True), tokenizer_config={"chat_template": "old"})
    assert load_tokenizer(folder).chat_template == "old"
    (folder / "chat_template.jinja").write_text("new")
    assert load_tokenizer(folder / "tokenizer.json").chat_template == "new"


def word_level() -> Pipeline:
    return Pipeline(models.WordLevel({"a": 0}, unk_token="a"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "does not exist"),
        (b"", "has 0 bytes"),
        (b"{", "is not a valid tokenizer"),
        (b'{"version": "1.0", "model": {"type": "BPE"}}', "is not a valid tokenizer"),
        (b"\xff\xfe" * 100, "is not a valid tokenizer"),
        (b"[" * 100_000, "is not a valid tokenizer"),
        (word_level().to_str().encode(), "WordLevel are not supported"),
        (Pipeline(models.BPE({"a": 0}, [])).to_str().encode(), "neither byte-level nor SentencePiece"),
        (
            Pipeline(models.BPE({"a": 777}, [])).to_str().replace("777", "4000000000").encode(),
            "token ids up to",
        ),
        (Pipeline(models.BPE({}, [])).to_str().encode(), "token ids up to"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path: Path, content: bytes | None, named: str):
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(EngineError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == "model_invalid"
    assert named in caught.value.message
    assert "tokenizer.json" in caught.value.message


def test_broken_settings_are_refused_by_name(tmp_path: Path):
    folder = write(tmp_path / "m", sentencepiece(normalizer=True), tokenizer_config={"bos_token": 7})
    with pytest.raises(EngineError, match=r"tokenizer_config.json: bos_token must be a token's text"):
        load_tokenizer(folder)


def test_control_tokens_as_whole_words_are_refused(tmp_path: Path):
    pipeline = sentencepiece(scheme="never")
    pipeline.add_special_tokens([special("<word>", single_word=True)])
    with pytest.raises(EngineError, match="single_word of '<word>' is not supported"):
        load_tokenizer(write(tmp_path / "m", pipeline))


def test_every_cut_of_a_file_is_refused(tmp_path: Path):
    content = sentencepiece(normalizer=True).to_str().encode()
    for length in range(0, len(content), len(content) // 60):
        (tmp_path / "tokenizer.json").write_bytes(content[:length])
        with pytest.raises(EngineError):
            load_tokenizer(tmp_path)

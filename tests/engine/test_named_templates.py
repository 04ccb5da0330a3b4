"""Chat templates by name, and from a file: what they write, what is refused, and models that have none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine import AsyncEngine, EngineConfig, EngineError, Message, SamplingParams
from engine.model import load_model
from engine.named_templates import MAX_TEMPLATE, named_template, read_template, template_names
from engine.tokenization import DEFAULT_TEMPLATE, foreign_marks, load_tokenizer, render_chat
from engine.tokenization.vocabulary import BYTE_ALPHABET

SYSTEM, USER, ANSWER, AGAIN = "Be brief.", "Hi", "Hello", "Bye"
TALK = [
    Message("system", SYSTEM),
    Message("user", USER),
    Message("assistant", ANSWER),
    Message("user", AGAIN),
]
WRITTEN = {
    "alpaca": "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### Instruction:\nBye\n\n"
    "### Response:\n",
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "command-r": "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "deepseek": "<s>Be brief.<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜>"
    "<｜User｜>Bye<｜Assistant｜>",
    "gemma": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
    "Hello<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "gemma4": "<s><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello<turn|>\n"
    "<|turn>user\nBye<turn|>\n<|turn>model\n",
    "glm4": "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi<|assistant|>\nHello<|user|>\nBye<|assistant|>",
    "granite": "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|>Hi<|end_of_text|>\n"
    "<|start_of_role|>assistant<|end_of_role|>Hello<|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "llama2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Bye [/INST]",
    "mistral-v7": "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello</s>[INST]Bye[/INST]",
    "olmo2": "<s><|system|>\nBe brief.\n<|user|>\nHi\n<|assistant|>\nHello</s>\n"
    "<|user|>\nBye\n<|assistant|>\n",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n"
    "<|user|>\nBye<|end|>\n<|assistant|>\n",
    "phi4": "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi<|im_end|>"
    "<|im_start|>assistant<|im_sep|>Hello<|im_end|><|im_start|>user<|im_sep|>Bye<|im_end|>"
    "<|im_start|>assistant<|im_sep|>",
    "vicuna": "Be brief.\n\nUSER: Hi ASSISTANT: Hello</s>USER: Bye ASSISTANT:",
    "zephyr": "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n"
    "<|assistant|>\n",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_template_writes(name: str) -> None:
    assert render_chat(read_template(name), TALK, bos_token="<s>", eos_token="</s>") == WRITTEN[name]


def test_harmony_has_the_date_and_the_channels() -> None:
    text = render_chat(read_template("harmony"), TALK, reasoning_effort="high")
    assert text.startswith(
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI."
    )
    assert "\n\nReasoning: high\n\n# Valid channels: analysis, commentary, final." in text
    assert text.endswith(
        "<|end|><|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|>"
        "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hello<|end|>"
        "<|start|>user<|message|>Bye<|end|><|start|>assistant"
    )


def test_every_template_does_without_names_of_tokens_and_is_continued() -> None:
    assert {*WRITTEN, "harmony"} == {*template_names()}
    assert named_template("chatml") == DEFAULT_TEMPLATE
    for name in template_names():
        template = read_template(name)
        assert "Hello" in render_chat(template, TALK), name
        for talk in (TALK[1:2], [*TALK, Message("user", "!")], [Message("system", SYSTEM)]):
            assert render_chat(template, talk), name
        assert render_chat(template, TALK[:3], continue_final=True).endswith("Hello"), name


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ("chatlm", "did you mean 'chatml'?"),
        ("LLAMA3", "did you mean 'llama3'?"),
        ("no such thing", "template must be one of alpaca, chatml,"),
        ("", "template must be a name or the path of a file, not ''"),
        (7, "template must be a name or the path of a file, not 7"),
    ],
)
def test_names_nobody_knows(chosen: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        EngineConfig(model="x", template=chosen)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe{\x00", "is UTF-16 or UTF-32 text; save the file as UTF-8"),
        (b"{{ '\xff' }}", "is not valid UTF-8 (at byte 4)"),
        (b"x" * (4 * MAX_TEMPLATE + 1), f"at most {4 * MAX_TEMPLATE} are allowed"),
    ],
)
def test_files_that_are_no_template(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "own.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(EngineError) as caught:
        read_template(str(file))
    assert caught.value.code == "template"
    assert str(file) in caught.value.message
    assert problem in caught.value.message


def test_a_folder_and_a_pipe_are_no_template(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="not a regular file"):
        read_template(str(tmp_path))


def test_a_name_goes_before_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chatml").write_text("mine")
    Path("mine").write_bytes(b"\xef\xbb\xbfmine")
    assert read_template("chatml") == DEFAULT_TEMPLATE
    assert read_template("./chatml") == "mine"
    assert EngineConfig(model="x", template="mine").template == "mine"
    assert read_template("mine") == "mine"


# A model without a template, whose vocabulary has no markers.

WIDTH = 32


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    sizes = ("hidden_size", "intermediate_size")
    config: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= dict.fromkeys(sizes, WIDTH) | {"vocab_size": 256, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    layer = "model.layers.0"
    vectors = ["model.norm", f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    matrices = [f"{layer}.self_attn.{each}_proj" for each in "qkvo"]
    matrices += [f"{layer}.mlp.{each}_proj" for each in ("gate", "up", "down")]
    shapes = {"model.embed_tokens": (256, WIDTH)} | dict.fromkeys(matrices, (WIDTH, WIDTH))
    shapes |= dict.fromkeys(vectors, (WIDTH,))
    values = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
    safetensors.numpy.save_file(values, folder / "model.safetensors")
    pipeline = Tokenizer(models.BPE(dict(BYTE_ALPHABET), []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.save(str(folder / "tokenizer.json"))
    return folder


def test_a_model_without_a_template_says_so_before_its_weights_are_read(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.placing.place_tensors", lambda *_: pytest.fail("weights are read"))
    with pytest.raises(EngineError, match="the model has no chat template") as caught:
        load_model(EngineConfig(model=bare), chat=True)
    assert caught.value.code == "template"
    with pytest.raises(EngineError, match="does not exist") as caught:
        load_model(EngineConfig(model=bare, template="/no/such.jinja"), chat=True)
    assert caught.value.code == "template"


def test_of_several_templates_none_is_guessed_and_chatml_is_not_said(bare: Path) -> None:
    declared = {"chat_template": {"tool_use": "A", "rag": "B"}}
    (bare / "tokenizer_config.json").write_text(json.dumps(declared))
    with pytest.raises(EngineError, match=r"(?s)tool_use.*none of them") as caught:
        load_model(EngineConfig(model=bare), chat=True)
    assert caught.value.code == "template"


def test_the_text_of_a_template_is_one() -> None:
    for text in ("{{ messages }}", "{% if true %}a/b.c{% endif %}"):
        assert read_template(text) == text
        assert EngineConfig(model="m", template=text).template == text


async def test_a_template_that_was_given_is_the_models(bare: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    for template, expected in ((str(own), "[Hi]"), ("alpaca", "### Instruction:\nHi\n\n### Response:\n")):
        config = EngineConfig(model=bare, template=template, kv_blocks=4, backend="reference")
        async with AsyncEngine(config, chat=True) as engine:
            assert engine.info.has_chat_template
            assert engine.info.notes == ()
            ids = await engine.tokenize([Message("user", "Hi")])
            assert bytes(ids).decode() == expected
            assert await engine.tokenize("Hi") == [*b"Hi"]  # raw text goes without


async def test_raw_text_needs_no_template(bare: Path) -> None:
    config = EngineConfig(model=bare, kv_blocks=4, backend="reference")
    async with AsyncEngine(config) as engine:
        assert not engine.info.has_chat_template
        async with engine.generate("Hi", SamplingParams(temperature=0, max_tokens=1)) as stream:
            assert (await stream.result()).reason == "length"
        async with engine.generate([Message("user", "Hi")]) as stream:
            error = (await stream.result()).error
    assert error is not None
    assert error.code == "template"


async def test_markers_that_the_model_has_no_token_for_are_noted(bare: Path, default_model: Path) -> None:
    config = EngineConfig(model=bare, template="gemma", kv_blocks=4, backend="reference")
    async with AsyncEngine(config) as engine:
        assert engine.info.notes == (
            "the chat template writes <end_of_turn>, <start_of_turn>, which the model has no token for: "
            "they are words to it",
        )
    tokenizer = load_tokenizer(default_model)
    assert foreign_marks(tokenizer, named_template("chatml")) == []
    assert foreign_marks(tokenizer, "{{ '<|' + role + '|>' + '<b>' }}<|im_start|>") == []
    assert foreign_marks(tokenizer, named_template("deepseek")) == [
        "<｜Assistant｜>",
        "<｜User｜>",
        "<｜end▁of▁sentence｜>",
    ]

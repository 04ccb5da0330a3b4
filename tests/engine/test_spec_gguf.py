"""GGUF metadata -> model specification."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.loading.gguf import GGUFFile, read_gguf
from engine.loading.gguf_spec import read_metadata
from engine.loading.stored import StoredTensor
from engine.models.rope import attention_factor
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from engine.types import EngineError

SIZES: dict[str, Any] = {
    "context_length": 128,
    "embedding_length": 64,
    "block_count": 3,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500000.0,
}


def floats(name: str, values: np.ndarray) -> StoredTensor:
    data = np.ascontiguousarray(values, np.float32)
    return StoredTensor(name, data.shape, "F32", data.reshape(-1).view(np.uint8))


def file(
    architecture: str = "llama", factors: Any = None, sizes: dict[str, Any] | None = None, **changes: Any
) -> GGUFFile:
    """A header in memory; `sizes` changes the architecture's own keys, an Ellipsis leaves a key out."""
    values = {**SIZES, **(sizes or {})}
    metadata = {f"{architecture}.{key}": value for key, value in values.items() if value is not ...}
    metadata = {"general.architecture": architecture, **metadata, **changes}
    tensors = {"token_embd.weight": floats("token_embd.weight", np.zeros((100, 64)))}
    if factors is not None:
        tensors["rope_freqs.weight"] = floats("rope_freqs.weight", np.asarray(factors))
    return GGUFFile(Path("m.gguf"), 3, {k: v for k, v in metadata.items() if v is not ...}, tensors)


def refuse(header: GGUFFile) -> str:
    with pytest.raises(EngineError) as caught:
        read_metadata(header)
    assert caught.value.code == "model_invalid"
    assert caught.value.message.startswith("m.gguf: ")
    return caught.value.message


def rope(**sizes: Any) -> RopeSpec:
    return (
        read_metadata(file(sizes={key.replace("__", "."): value for key, value in sizes.items()}))
        .spec.layers[0]
        .rope
    )


def test_default_model(default_model: Path) -> None:
    declared = read_metadata(read_gguf(default_model))
    assert declared.spec == ModelSpec(
        architecture="llama",
        layers=(LayerSpec(rope=RopeSpec(base=100000.0, layout="interleaved")),) * 30,
        width=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        feed_forward=1536,
        vocabulary=49152,
        context_length=8192,
        norm_eps=float(np.float32(1e-5)),
    )
    assert declared.tied is None
    assert declared.biases == frozenset()


def test_B089_row_order_of_each_architecture() -> None:
    assert read_metadata(file("llama")).spec.ropes[0].layout == "interleaved"
    assert read_metadata(file("qwen2")).spec.ropes[0].layout == "half"
    assert read_metadata(file("qwen3")).spec.ropes[0].layout == "half"


def test_families() -> None:
    assert read_metadata(file("qwen2")).biases == {"q_bias", "k_bias", "v_bias"}
    assert "q_norm" in read_metadata(file("qwen3")).family.names
    for architecture in ("mistral", "gpt2", "x" * 1000):
        assert "general.architecture" in refuse(file(architecture))
    for architecture in (..., 7, ["llama"]):
        assert "general.architecture" in refuse(file(**{"general.architecture": architecture}))


REQUIRED = (
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
)


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("value", [..., 0, -1, 10**12, 2.0, "64", True, [4, 4, 4]])
def test_B019_sizes_that_are_missing_or_absurd_are_refused(key: str, value: Any) -> None:
    assert f"llama.{key}" in refuse(file(sizes={key: value}))


def test_missing_keys() -> None:
    assert read_metadata(file(sizes={"attention.head_count_kv": ...})).spec.kv_heads == 4
    assert rope(rope__freq_base=...).base == 10000.0
    assert "layer_norm_rms_epsilon is missing" in refuse(
        file(sizes={"attention.layer_norm_rms_epsilon": ...})
    )
    header = file()
    del header.tensors["token_embd.weight"]
    assert "token_embd.weight is missing" in refuse(header)


def test_head_sizes() -> None:
    assert read_metadata(file(sizes={"attention.key_length": 32})).spec.sizes(0).q_columns == 128
    assert "attention.value_length" in refuse(file(sizes={"attention.value_length": 32}))
    assert "rope.dimension_count" in refuse(file(sizes={"rope.dimension_count": 8}))
    assert read_metadata(file(sizes={"rope.dimension_count": 16})).spec.head_dim == 16
    assert "does not divide" in refuse(file(sizes={"embedding_length": 66}))
    assert "do not divide" in refuse(file(sizes={"attention.head_count_kv": 3}))


def test_rows_of_the_embedding_are_the_vocabulary() -> None:
    tokens = {"tokenizer.ggml.tokens": ["t"] * 90}
    assert read_metadata(file(**tokens)).spec.vocabulary == 100
    tokens = {"tokenizer.ggml.tokens": ["t"] * 101}
    assert "101 entries" in refuse(file(**tokens))


def test_linear_scaling() -> None:
    expected = RopeSpec(base=500000.0, layout="interleaved", scaling="linear", factor=4.0)
    assert rope(rope__scaling__type="linear", rope__scaling__factor=4.0) == expected
    assert rope(rope__scaling__factor=4.0) == expected, "ggml's default kind"
    assert rope(rope__scale_linear=4.0) == expected, "the key of old files"
    plain = RopeSpec(base=500000.0, layout="interleaved")
    assert rope(rope__scaling__type="none", rope__scaling__factor=4.0) == plain
    assert rope(rope__scaling__factor=0.0) == plain
    assert rope(rope__scaling__factor=1.0) == plain


def test_yarn() -> None:
    yarn = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
    }
    spec = read_metadata(file(sizes=yarn)).spec
    assert (
        spec.ropes[0].scaling,
        spec.ropes[0].factor,
        spec.ropes[0].original_context,
    ) == ("yarn", 4.0, 64)
    assert attention_factor(spec.ropes[0]) == pytest.approx(1 + 0.1 * np.log(4))
    assert spec.context_length == 256
    scaled = read_metadata(file(sizes={**yarn, "rope.scaling.attn_factor": 0.5})).spec
    assert scaled.ropes[0].attention_factor == pytest.approx(0.5 * (1 + 0.1 * np.log(4)))


def test_B093_unknown_scaling_is_refused() -> None:
    longrope = file(sizes={"rope.scaling.type": "longrope"})
    assert "LongRoPE needs the tensors rope_factors_long.weight" in refuse(longrope)
    for kind in ("dynamic", "x"):
        header = file(sizes={"rope.scaling.type": kind, "rope.scaling.factor": 2.0})
        assert f"llama.rope.scaling.type '{kind}' is not supported" in refuse(header)
    for factor in (-1.0, float("nan"), float("inf"), 1e-9):
        assert "rope.scaling.factor" in refuse(file(sizes={"rope.scaling.factor": factor}))


def test_frequency_factors() -> None:
    factors = [1.0, 1.0, 2.5, 8.0, 8.0, 8.0, 8.0, 8.0]
    spec = read_metadata(file(factors=factors)).spec
    assert (spec.ropes[0].scaling, spec.ropes[0].factors) == ("factors", tuple(factors))
    assert "shape (7,)" in refuse(file(factors=factors[1:]))
    for bad in (0.0, -1.0, np.nan, np.inf):
        assert "rope_freqs.weight" in refuse(file(factors=[bad, *factors[1:]]))
    assert "rope_freqs.weight" in refuse(file(factors=factors, sizes={"rope.scaling.factor": 2.0}))


def test_longrope() -> None:
    header = file("phi3", sizes={"rope.scaling.original_context_length": 32})
    for name, factor in (("long", 4.0), ("short", 1.0)):
        tensor = f"rope_factors_{name}.weight"
        header.tensors[tensor] = floats(tensor, np.full(8, factor))
        if name == "long":
            assert "LongRoPE needs the tensors" in refuse(header)
    (rope,) = read_metadata(header).spec.ropes
    assert (rope.scaling, rope.original_context) == ("longrope", 32)
    assert (rope.within(128).factors, rope.within(32).factors) == ((4.0,) * 8, (1.0,) * 8)
    header.metadata["phi3.rope.scaling.attn_factor"] = 1.19
    assert attention_factor(read_metadata(header).spec.ropes[0].within(128)) == 1.19
    header.tensors["rope_freqs.weight"] = floats("rope_freqs.weight", np.ones(8))
    assert "no others of their kind" in refuse(header)


def test_windows_by_a_pattern() -> None:
    sizes = {"attention.sliding_window": 9}
    for pattern, windows in (
        ([True, False, True], [9, None, 9]),
        (np.array([0, 1, 1]), [None, 9, 9]),
        (2, [9, None, 9]),
    ):
        spec = read_metadata(file("olmo2", sizes={**sizes, "attention.sliding_window_pattern": pattern})).spec
        assert [layer.window for layer in spec.layers] == windows
    assert [layer.window for layer in read_metadata(file("olmo2")).spec.layers] == [None] * 3, "OLMo 2"
    for bad in ([True, False], [2, 1, 1], "x", 0):
        message = refuse(file("olmo2", sizes={**sizes, "attention.sliding_window_pattern": bad}))
        assert "olmo2.attention.sliding_window_pattern must" in message


def test_a_growth_of_yarn_that_is_taken_out_again() -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 16.0}
    for changes, expected in (
        ({"rope.scaling.yarn_log_multiplier": 1.0}, 1.0),
        ({"rope.scaling.yarn_attn_factor": 1.3}, 1.3),
        ({"rope.scaling.yarn_attn_factor": 1.3, "rope.scaling.attn_factor": 2.0}, 2.6),
    ):
        spec = read_metadata(file("mistral3", sizes={**yarn, **changes})).spec
        assert attention_factor(spec.ropes[0]) == pytest.approx(expected)


def test_what_is_not_supported_is_refused_by_name() -> None:
    assert "llama.expert_group_count" in refuse(file(sizes={"expert_group_count": 8}))
    assert "llama.attention.causal" in refuse(file(sizes={"attention.causal": False}))
    assert "sliding_window_pattern" in refuse(file(sizes={"attention.sliding_window_pattern": [True] * 3}))
    assert "split.count is 3" in refuse(file(**{"split.count": 3}))
    assert read_metadata(file(sizes={"attention.sliding_window": 9})).spec.layers[-1].window == 9
    assert read_metadata(file(sizes={"attention.sliding_window": 0})).spec.layers[-1].window is None


def test_a_size_may_stand_once_for_each_layer() -> None:
    sizes = {"attention.head_count_kv": np.full(3, 2, np.int32), "feed_forward_length": np.full(3, 96)}
    assert read_metadata(file(sizes=sizes)) == read_metadata(file())
    for differing in (np.array([2, 2, 1], np.int32), np.empty(0, np.int32), np.full(3, True)):
        message = refuse(file(sizes={"attention.head_count_kv": differing}))
        assert "llama.attention.head_count_kv must be an integer, not" in message

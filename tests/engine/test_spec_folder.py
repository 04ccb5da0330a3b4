"""config.json -> model specification."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from engine.loading.fields import Fields
from engine.loading.folder_spec import read_config
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec
from engine.types import EngineError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
PATH = Path("folder/config.json")


def read(**changes: Any) -> Any:
    config = {**LLAMA, **changes}
    return read_config(Fields(PATH, {key: value for key, value in config.items() if value is not ...}))


def refuse(**changes: Any) -> str:
    with pytest.raises(EngineError) as caught:
        read(**changes)
    message = caught.value.message
    assert caught.value.code == "model_invalid"
    assert message.startswith("folder/config.json: ")
    assert len(message) < 600  # the longest lists all families
    return message


def test_llama() -> None:
    declared = read()
    assert declared.spec == ModelSpec(
        architecture="llama",
        layers=(LayerSpec(rope=RopeSpec(base=500000.0, layout="half")),) * 3,
        width=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        feed_forward=96,
        vocabulary=100,
        context_length=128,
        norm_eps=1e-5,
    )
    assert declared.biases == frozenset()
    assert declared.tied is False


def test_B091_head_size() -> None:
    assert read(head_dim=32).spec.sizes(0).q_columns == 128
    assert read(head_dim=None).spec.head_dim == 16
    assert read(head_dim=...).spec.head_dim == 16
    assert "hidden_size (66)" in refuse(hidden_size=66)
    assert read(hidden_size=66, head_dim=16).spec.width == 66


def test_missing_keys_take_the_library_s_defaults() -> None:
    declared = read(
        num_key_value_heads=..., rms_norm_eps=..., rope_theta=..., hidden_act=..., tie_word_embeddings=...
    )
    assert declared.spec.kv_heads == 4
    assert declared.spec.norm_eps == 1e-6
    assert declared.spec.ropes[0].base == 10000.0
    assert declared.tied is None


SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [..., None, 0, -1, 10**12, 2.0, 64.5, "64", True, [64], {}, float("nan")])
def test_B019_sizes_that_are_missing_or_absurd_are_refused(field: str, value: Any) -> None:
    assert field in refuse(**{field: value})


@pytest.mark.parametrize("field", ["num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("value", [0, -1, 10**12, 2.0, "2", True])
def test_optional_sizes_that_are_absurd_are_refused(field: str, value: Any) -> None:
    assert field in refuse(**{field: value})


def test_messages_stay_short() -> None:
    for value, field in itertools.product(("x" * 10_000, [0] * 10_000, 10**4000), TYPED):
        refuse(**{field: value})


TYPED = ("hidden_size", "model_type", "hidden_act", "rms_norm_eps", "tie_word_embeddings")


def test_sizes_that_contradict_each_other_are_refused() -> None:
    assert "3 key-value heads do not divide 4" in refuse(num_key_value_heads=3)
    assert "head size of 15 is odd" in refuse(head_dim=15)


def test_what_is_not_supported_is_refused_by_name() -> None:
    assert "model_type 'gpt2' is not supported" in refuse(model_type="gpt2")
    assert "model_type is missing" in refuse(model_type=...)
    assert "hidden_act 'gelu' is not supported" in refuse(hidden_act="gelu")
    for kind in ("mistral", "qwen2", "qwen3"):
        assert "mlp_bias" in refuse(model_type=kind, mlp_bias=True)
    assert "partial_rotary_factor" in refuse(partial_rotary_factor=0.5)
    assert "rms_norm_eps" in refuse(rms_norm_eps="small")


def test_biases_that_must_be_there() -> None:
    qkv = {"q_bias", "k_bias", "v_bias"}
    assert read(attention_bias=True).biases == qkv | {"output_bias"}
    assert read(mlp_bias=True).biases == {"gate_bias", "up_bias", "down_bias"}
    assert read(model_type="qwen2").biases == qkv
    assert read(model_type="mistral").biases == frozenset()
    assert read(model_type="qwen3", attention_bias=True).biases == qkv | {"output_bias"}


def test_qwen3_has_norms_on_its_heads() -> None:
    assert "q_norm" in read(model_type="qwen3", head_dim=128).family.names
    assert "q_norm" not in read(model_type="qwen2").family.names


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_B093_kinds_of_scaling() -> None:
    scaled = RopeSpec(
        base=500000.0, scaling="llama3", factor=8.0, original_context=64, low_factor=1.0, high_factor=4.0
    )
    assert read(rope_scaling=LLAMA3).spec.ropes[0] == scaled
    new = read(rope_theta=..., rope_parameters={**LLAMA3, "rope_theta": 500000.0})
    assert new.spec.ropes[0] == scaled
    plain = RopeSpec(base=500000.0)
    for scaling in (None, {"rope_type": "default"}, {"type": "default"}, {}):
        assert read(rope_scaling=scaling).spec.ropes[0] == plain
    linear = read(rope_scaling={"type": "linear", "factor": 2}).spec.ropes[0]
    assert linear == RopeSpec(base=500000.0, scaling="linear", factor=2.0)
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "alpha": 9.0}
    assert read(rope_scaling=dynamic).spec.ropes[0] == plain, "stretched beyond the context alone"
    stretched = read(model_type="hunyuan_v1_dense", rope_scaling=dynamic).spec.ropes[0]
    assert stretched == RopeSpec(base=500000.0 * 9.0 ** (16 / 14))
    for kind in ("alpha", "su", "mrope", "nonsense"):
        assert f"rope_scaling.rope_type '{kind}' is not supported" in refuse(
            rope_scaling={"rope_type": kind, "factor": 2.0}
        )


@pytest.mark.parametrize("key", ["factor", "low_freq_factor", "high_freq_factor"])
def test_B093_incomplete_scaling_is_refused(key: str) -> None:
    for value in (..., 0, -1.0, "8", float("inf")):
        scaling = {**LLAMA3, key: value}
        assert f"rope_scaling.{key}" in refuse(
            rope_scaling={k: v for k, v in scaling.items() if v is not ...}
        )
    assert "high_freq_factor" in refuse(rope_scaling={**LLAMA3, "high_freq_factor": 1.0})
    assert "rope_scaling" in refuse(rope_scaling=[1])
    assert "rope_parameters" in refuse(rope_parameters={"full_attention": {"rope_type": "default"}})


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def test_yarn() -> None:
    spec = read(rope_scaling=YARN).spec
    assert spec.ropes[0] == RopeSpec(base=500000.0, scaling="yarn", factor=4.0, original_context=64)
    assert spec.context_length == 256, "files that add YaRN afterwards declare the length before"
    assert read(rope_scaling={**YARN, "factor": 1.5}).spec.context_length == 128
    without = {key: value for key, value in YARN.items() if not key.startswith("original")}
    assert read(rope_scaling=without).spec.ropes[0].original_context == 128
    assert read(rope_scaling={**YARN, "attention_factor": 1.5}).spec.ropes[0].attention_factor == 1.5
    both = read(rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}).spec.ropes[0].attention_factor
    assert both == pytest.approx((0.07 * 1.3862943611 + 1) / (0.1 * 1.3862943611 + 1))
    assert "beta_fast" in refuse(rope_scaling={**YARN, "beta_fast": 1, "beta_slow": 2})
    assert read(rope_scaling={**YARN, "truncate": False}).spec.ropes[0].truncated is False


PHI: dict[str, Any] = {
    "model_type": "phi3",
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.75,
}
LONGROPE = {"type": "longrope", "long_factor": [2, 3.0] * 3, "short_factor": [1.0] * 6}


def test_longrope() -> None:
    spec = read(**PHI, rope_scaling=LONGROPE).spec
    (rope,) = spec.ropes
    assert (rope.scaling, rope.original_context, rope.columns) == ("longrope", 32, 12)
    assert (rope.factors, rope.short_factors) == ((2.0, 3.0) * 3, (1.0,) * 6)
    assert rope.attention_factor == pytest.approx((1 + 2 / 5) ** 0.5), "by log(128 / 32) / log(32)"
    assert spec.context_length == 128
    for older in ("su", "yarn"):
        assert read(**PHI, rope_scaling={**LONGROPE, "type": older}).spec == spec
    inside = {**LONGROPE, "original_max_position_embeddings": 64}
    assert read(**PHI, rope_scaling=inside).spec == spec, "what stands at the top wins"
    default = read(**{**PHI, "original_max_position_embeddings": ...}, rope_scaling=LONGROPE).spec
    assert default.ropes[0].original_context == 4096
    assert default.ropes[0].attention_factor == 1.0
    assert rope.within(32).factors == rope.short_factors
    assert rope.within(33).factors == rope.factors
    for name in ("long_factor", "short_factor"):
        for bad in (..., [], [1.0] * 5, [1.0] * 5 + [0], [1.0] * 5 + ["1"], [1.0] * 5 + [float("nan")], "x"):
            scaling = {key: value for key, value in {**LONGROPE, name: bad}.items() if value is not ...}
            assert f"rope_scaling.{name} must" in refuse(**PHI, rope_scaling=scaling)


def test_queries_that_grow_with_their_position() -> None:
    ministral = {"model_type": "ministral3", "head_dim": 16}
    rope = {**YARN, "llama_4_scaling_beta": 0.1}
    spec = read(**ministral, rope_parameters=rope).spec
    assert (spec.ropes[0].temperature, spec.ropes[0].original_context) == (0.1, 64)
    assert spec.ropes[1] == spec.ropes[0].of_keys
    assert "llama_4_scaling_beta is missing" in refuse(**ministral, rope_parameters=YARN)
    assert len(read(**ministral, rope_parameters={**rope, "llama_4_scaling_beta": 0}).spec.ropes) == 1


def test_positions_of_images_are_of_no_account_in_models_that_have_them() -> None:
    rope = {"rope_type": "mrope", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
    spec = read(model_type="qwen2_5_vl", rope_parameters=rope).spec
    assert spec.ropes == (RopeSpec(base=1e6),)
    assert "mrope_section is not supported" in refuse(rope_parameters={**rope, "rope_type": "default"})


def windows(spec: ModelSpec) -> list[int | None]:
    return [layer.window for layer in spec.layers]


def test_windows() -> None:
    assert windows(read(sliding_window=8).spec) == [None] * 3, "llama has none"
    mistral = {"model_type": "mistral"}
    spec = read(**mistral, sliding_window=8).spec
    assert windows(spec) == [8] * 3
    assert windows(read(**mistral, sliding_window=None).spec) == [None] * 3
    assert windows(read(**mistral).spec)[2] == 4096
    assert "sliding_window" in refuse(**mistral, sliding_window=0)
    assert windows(read(**mistral, sliding_window=2**31 - 1).spec) == [2**31 - 1] * 3
    assert "sliding_window" in refuse(**mistral, sliding_window=2**31), "positions are int32"
    for kind in ("qwen2", "qwen3"):
        qwen = {"model_type": kind, "sliding_window": 8, "max_window_layers": 1}
        assert windows(read(**qwen).spec) == [None] * 3
        assert windows(read(**{**qwen, "sliding_window": 0}).spec) == [None] * 3, "not in use"
        default = {key: value for key, value in qwen.items() if key != "sliding_window"}
        assert windows(read(**default, use_sliding_window=True).spec)[2] == 4096
        spec = read(**qwen, use_sliding_window=True).spec
        assert windows(spec) == [None, 8, 8]
        types = ["sliding_attention", "full_attention", "full_attention"]
        spec = read(**qwen, use_sliding_window=True, layer_types=types).spec
        assert windows(spec) == [8, None, None]
        on = {"use_sliding_window": True}
        assert "layer_types" in refuse(**qwen, **on, layer_types=types[:2])
        assert "layer_types" in refuse(**qwen, **on, layer_types=["linear_attention"] * 3)
        assert "use_sliding_window" in refuse(**qwen, use_sliding_window="yes")


def test_layer_types_of_mistral_are_refused_where_they_differ() -> None:
    mistral = {"model_type": "mistral", "sliding_window": 8}
    mixed = ["sliding_attention", "full_attention", "full_attention"]
    assert "layer_types" in refuse(**mistral, layer_types=mixed)
    assert windows(read(**mistral, layer_types=["sliding_attention"] * 3).spec)[2] == 8
    none = {"model_type": "mistral", "sliding_window": None}
    assert windows(read(**none, layer_types=["full_attention"] * 3).spec) == [None] * 3
    assert "layer_types" in refuse(**none, layer_types=["sliding_attention"] * 3)

"""Rotary embedding: frequencies of every scaling against exact values and transformers; the tables."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

from engine.loading.fields import Fields
from engine.loading.folder_spec import read_config
from engine.models.rope import Rotations, attention_factor, frequencies, rotation_tables
from engine.models.spec import LayerSpec, ModelSpec, RopeSpec

LLAMA3 = RopeSpec(
    base=500000.0, scaling="llama3", factor=8.0, original_context=8192, low_factor=1.0, high_factor=4.0
)


def test_B093_llama3_frequencies() -> None:
    result = frequencies(LLAMA3, 128)
    assert result.shape == (64,)
    expected = {
        28: 3.211446e-03,
        29: 2.166571e-03,
        30: 1.371894e-03,
        32: 5.248462e-04,
        34: 1.785078e-04,
        35: 9.556212e-05,
        63: 3.068926e-07,
    }
    for index, value in expected.items():
        assert result[index] == pytest.approx(value, rel=1e-5), index
    plain = frequencies(RopeSpec(base=500000.0), 128)
    assert np.array_equal(result[:29], plain[:29])
    assert np.array_equal(result[35:], plain[35:] / 8)


def test_B093_without_scaling() -> None:
    expected = [500000.0 ** (-2 * i / 128) for i in range(64)]
    assert frequencies(RopeSpec(base=500000.0), 128) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("base", [2.0, 10000.0, 500000.0, 1234567.8, 1e15])
@pytest.mark.parametrize("head_dim", [2, 64, 80, 128])
def test_frequencies_are_the_floats_nearest_to_the_exact_powers(base: float, head_dim: int) -> None:
    """numpy's powers are not, and differ between processors: then so would the bits of late positions."""
    exact = [Decimal(base) ** (Decimal(-2 * i) / head_dim) for i in range(head_dim // 2)]
    assert frequencies(RopeSpec(base=base), head_dim).tolist() == [float(power) for power in exact]


def test_B093_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="'longrope'"):
        frequencies(RopeSpec(scaling="longrope"), 64)  # type: ignore[arg-type]


CASES = [
    (RopeSpec(base=10000.0, scaling="linear", factor=2.5), {"rope_type": "linear", "factor": 2.5}),
    (
        LLAMA3,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        RopeSpec(base=1e6, scaling="yarn", factor=4.0, original_context=32768),
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    (
        RopeSpec(
            base=10000.0,
            scaling="yarn",
            factor=16.0,
            original_context=2048,
            beta_fast=20.0,
            beta_slow=2.0,
            attention_factor=1.25,
        ),
        {
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 2048,
            "beta_fast": 20,
            "beta_slow": 2,
            "attention_factor": 1.25,
        },
    ),
    (
        RopeSpec(scaling="yarn", factor=32.0, original_context=4096, truncated=False),
        {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    ),
]


@pytest.mark.parametrize(
    ("rope", "parameters"), CASES, ids=[f"{c[0].scaling}{i}" for i, c in enumerate(CASES)]
)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_frequencies_equal_transformers(rope: RopeSpec, parameters: dict, head_dim: int) -> None:
    config = LlamaConfig(
        hidden_size=head_dim * 4,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=65536,
        rope_parameters={"rope_theta": 10000.0, **parameters},
    )
    expected, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device="cpu")
    assert frequencies(rope, head_dim) == pytest.approx(expected.double().numpy(), rel=2e-5)
    assert attention_factor(rope) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("context", [4096, 4097])
def test_B093_longrope_goes_by_the_length_that_texts_may_reach(context: int) -> None:
    long, short = ([step * (1.0 + i) for i in range(32)] for step in (2.0, 1.0))
    parameters = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=65536,
        rope_parameters={
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 4096,
            **parameters,
        },
    )
    expected, factor = ROPE_INIT_FUNCTIONS["longrope"](config, device="cpu", seq_len=context)
    spec = read_config(Fields(Path("config.json"), {**config.to_dict(), "model_type": "llama"})).spec
    (rope,) = spec.ropes
    assert rope.scaling == "longrope"
    assert frequencies(rope.within(context), 64) == pytest.approx(expected.double().numpy(), rel=2e-5)
    assert attention_factor(rope.within(context)) == pytest.approx(factor, rel=1e-12)
    (tables,) = Rotations(replace(spec, context_length=context), 100).tables.values()
    tables.reach(100)
    angles = 99 * frequencies(rope.within(context), 64)
    assert tables.cos[99] == pytest.approx(np.cos(angles) * factor, abs=1e-6)


def test_queries_have_a_temperature_that_grows_with_their_position_and_keys_have_none() -> None:
    rope = RopeSpec(temperature=0.3, original_context=100)
    layers = (LayerSpec(None, rope),)
    spec = ModelSpec("x", layers, 8, 1, 1, 8, 8, 8, context_length=3000, norm_eps=1e-5)
    assert spec.ropes == (rope, rope.of_keys)
    positions = torch.arange(3000)
    queries, keys = (rotation_tables(each, 8, 3000) for each in spec.ropes)
    expected = get_llama_4_attn_scale(positions[None], 0.3, 100)[0, 0].numpy()
    assert np.hypot(*queries) == pytest.approx(np.broadcast_to(expected, (3000, 4)), rel=1e-6)
    plain = rotation_tables(RopeSpec(), 8, 3000)
    assert all(np.array_equal(a, b) for a, b in zip(keys, plain, strict=True))


def test_yarn_scales_queries_and_keys() -> None:
    rope = RopeSpec(scaling="yarn", factor=4.0, original_context=1024)
    assert attention_factor(rope) == pytest.approx(0.1 * np.log(4) + 1)
    assert attention_factor(replace(rope, attention_factor=0.5)) == 0.5
    cos, sin = rotation_tables(replace(rope, attention_factor=3.0), 32, 10)
    assert np.hypot(cos, sin) == pytest.approx(np.full((10, 16), 3.0), rel=1e-6)


def test_factors_divide_the_frequencies() -> None:
    factors = tuple(1.0 + i for i in range(16))
    plain = frequencies(RopeSpec(), 32)
    result = frequencies(RopeSpec(scaling="factors", factors=factors), 32)
    assert np.array_equal(result, plain / np.array(factors))


@pytest.mark.parametrize("positions", [1, 2, 255, 256, 257, 1000])
def test_tables_are_those_of_double_precision(positions: int) -> None:
    rope = RopeSpec(base=100000.0)
    cos, sin = rotation_tables(rope, 64, positions)
    assert cos.shape == sin.shape == (positions, 32)
    assert cos.dtype == sin.dtype == np.float32
    angles = np.arange(positions)[:, None] * frequencies(rope, 64)
    assert np.array_equal(cos, np.cos(angles).astype(np.float32))
    assert np.array_equal(sin, np.sin(angles).astype(np.float32))


def test_tables_stay_exact_far_out() -> None:
    """A million positions on, an entry is within one rounding of float32."""
    rope = RopeSpec(base=1e6)
    cos, sin = rotation_tables(rope, 16, 1_000_000)
    angles = np.arange(999_000, 1_000_000, dtype=np.float64)[:, None] * frequencies(rope, 16)
    assert np.abs(cos[-1000:] - np.cos(angles)).max() < 2.0**-24
    assert np.abs(sin[-1000:] - np.sin(angles)).max() < 2.0**-24


def test_a_shorter_table_is_the_beginning_of_a_longer_one() -> None:
    long = rotation_tables(LLAMA3, 128, 700)
    for positions in (1, 300, 512):
        short = rotation_tables(LLAMA3, 128, positions)
        assert all(np.array_equal(a, b[:positions]) for a, b in zip(short, long, strict=True))

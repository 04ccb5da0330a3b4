"""Sizes that differ from layer to layer: what config.json may say of them, and what it can't mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from engine.loading.fields import Fields
from engine.loading.folder_spec import read_config
from engine.models.spec import ModelSpec
from engine.roofline import Traffic
from engine.types import EngineError
from kernels.cache_format import CachedLayer, CacheShape
from tiny_models import MODELS, SIZES


def config(kind: str = "gemma4", **changes: Any) -> dict[str, Any]:
    """As the library saves it; ...: without this one."""
    name, special = MODELS[kind]
    values = getattr(transformers, name)(**{**SIZES, **special}).to_dict()
    return {key: value for key, value in {**values, **changes}.items() if value is not ...}


def read(values: dict[str, Any]) -> ModelSpec:
    return read_config(Fields(Path("config.json"), json.loads(json.dumps(values)))).spec


def test_the_options_of_published_files_mean_the_same_as_what_the_library_saves() -> None:
    published = {"per_layer_config": ..., "global_head_dim": 32}
    assert read(config(**published)) == read(config())
    kind = "gemma4-keys-are-values"
    assert read(config(kind, **published, num_global_key_value_heads=1)) == read(config(kind))


def test_layers_that_share_read_what_the_last_of_their_kind_keeps() -> None:
    spec = read(config())
    assert [layer.shares for layer in spec.layers] == [None] * 5 + [2, 4, 2]
    near, far = CachedLayer(2, 16), CachedLayer(2, 32)
    assert spec.cached == (near, near, far, near, near)
    assert [spec.cache_layer(i) for i in range(8)] == [0, 1, 2, 3, 4, 2, 4, 2]
    assert [spec.sizes(i).feed_forward for i in (4, 5)] == [96, 192]
    shape = CacheShape(spec.cached, 3, 16, "float16")
    assert shape.layer_bytes == (128, 128, 256, 128, 128)
    assert shape.nbytes == 3 * 16 * 768
    # The token itself is read in all eight layers, and written in five.
    written = Traffic.of(spec, 1000, shape.layer_bytes).written_bytes
    assert written == shape.bytes_per_token, "layers with a window have keys, too, and those that share none"
    assert Traffic.of(spec, 1000, shape.layer_bytes).token_bytes() == 1000 + (768 + 256 + 128 + 256) + 768


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_kv_shared_layers": 8}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 7}, "leaves no layer whose keys"),
        ({"per_layer_config": {"8": {"head_dim": 32}}}, "none of the 8 layers"),
        ({"per_layer_config": {"2": {"head_dim": 32}, "02": {}}}, "names layer 2 twice"),
        ({"per_layer_config": {"2": {"sliding_window": 3}}}, "per_layer_config.2.sliding_window"),
        ({"per_layer_config": {"2": {"head_dim": 32}}, "num_kv_shared_layers": 0}, "heads of 16 and 32"),
        ({"vocab_size_per_layer_input": 99}, "vocab_size_per_layer_input"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "both kinds"),
        ({"enable_moe_block": True}, "num_local_experts is missing"),
    ],
)
def test_what_can_t_be_meant_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError) as caught:
        read(config(**changes))
    assert said in caught.value.message
    assert caught.value.code == "model_invalid"

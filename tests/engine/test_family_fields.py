"""Each field of transformers' configurations and key of GGUF files is read, refused, or of no account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import transformers

from engine.loading.declared import Declared
from engine.loading.fields import Fields
from engine.loading.folder_spec import read_config
from engine.loading.gguf import GGUFFile
from engine.loading.gguf_spec import read_metadata
from engine.loading.stored import StoredTensor
from engine.models import families
from engine.models.family import Family
from engine.types import EngineError
from tiny_models import MODELS, SIZES, text_of

NO_ACCOUNT = {
    "attention_dropout": "for training",
    "resid_pdrop": "for training",
    "residual_dropout": "for training",
    "embd_pdrop": "for training",
    "initializer_range": "for training",
    "pretraining_tp": "how training was spread",
    "output_router_logits": "for training",
    "router_aux_loss_coef": "for training",
    "router_jitter_noise": "for training",
    "use_cache": "how it is run",
    "pad_token_id": "of batches of equal length",
    "bos_token_id": "for the tokenizer",
    "eos_token_id": "for the tokenizer",
    "eod_token_id": "for the tokenizer",
    "sep_token_id": "for the tokenizer",
    "moe_norm_min": "a bound that no sum of weights comes near",
}
OF_OTHER_LAYERS = ("mamba_", "time_step_limit", "num_experts_per_tok", "intermediate_size")
"""Where there may be other layers, which are refused."""
SETTLED = {
    "max_window_layers": ("layer_types", "use_sliding_window"),
    "layer_types": ("use_sliding_window",),
    "sliding_window": ("use_sliding_window",),
    "sliding_window_pattern": ("layer_types",),
    "no_rope_layer_interval": ("no_rope_layers",),
    "num_experts": ("num_local_experts",),
    "num_local_experts": ("num_experts",),
    "moe_intermediate_size": ("enable_moe_block",),
    "top_k_experts": ("enable_moe_block",),
}
"""Fields that others may have settled before they are looked at."""


def configurations() -> dict[str, Any]:
    """The text's part, by model_type."""
    found = {}
    for name, changes in MODELS.values():
        sizes = {} if "text_config" in changes else SIZES
        config = text_of(getattr(transformers, name)(**{**sizes, **changes}))
        found.setdefault(config.model_type, config)
    return found


CONFIGS = configurations()


def own_fields(config: Any) -> set[str]:
    shared = {field.name for field in fields(transformers.PreTrainedConfig)}
    return {field.name for field in fields(type(config))} - shared


def read(values: Mapping[str, Any]) -> Declared:
    return read_config(Fields(Path("config.json"), values))


def family_of(kind: str) -> Family:
    return next(each for each in families.discover() if kind in each.model_types)


def attempt(values: Mapping[str, Any]) -> tuple[Declared | None, str]:
    try:
        return read(values), ""
    except EngineError as error:
        return None, error.message


def test_the_configuration_of_each_family_is_looked_at() -> None:
    for family in families.discover():
        assert set(family.model_types) & CONFIGS.keys(), family.model_types


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that fields are asked for from now on."""
    asked: set[str] = set()
    get = Fields.get

    def recorded(self: Fields, name: str, default: Any = None) -> Any:
        asked.add(name)
        return get(self, name, default)

    monkeypatch.setattr(Fields, "get", recorded)
    return asked


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_field_of_a_configuration_is_read_or_of_no_account(kind: str, asked: set[str]) -> None:
    read(CONFIGS[kind].to_dict())
    if family_of(kind).biases:  # must be there, or the file is refused
        asked.add("attention_bias")
    asked.update(alias for alias, usual in family_of(kind).aliases.items() if usual in asked)
    left = own_fields(CONFIGS[kind]) - asked - NO_ACCOUNT.keys()
    if "mamba_n_heads" in left:
        left = {name for name in left if not name.startswith(OF_OTHER_LAYERS)}
    assert all(asked.intersection(SETTLED.get(name, ())) for name in left), left


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_field_that_is_missing_has_the_library_s_value_or_is_refused(kind: str) -> None:
    """Parts of multimodal models leave out all that is the library's own choice anyway."""
    config = type(CONFIGS[kind])()
    whole = chosen = config.to_dict()
    expected, _ = attempt(whole)
    if expected is None:  # what the library chooses is not supported
        whole = {**whole, **{key: CONFIGS[kind].to_dict()[key] for key in family_of(kind).defaults}}
        expected = read(whole)
    nested = any(kind in family.model_types and family.multimodal for family in families.discover())
    for name in (
        each for each in own_fields(config) - NO_ACCOUNT.keys() if whole.get(each) == chosen.get(each)
    ):
        found, reason = attempt({key: value for key, value in whole.items() if key != name})
        if found is None:
            assert not nested, f"{reason}: a part of a multimodal model may lack anything"
            assert any(f"{each} is missing" in reason for each in (name, *SETTLED.get(name, ())))
        else:
            assert found.spec == expected.spec, name
            assert found.biases <= expected.biases, name


KEYS_OF_NO_ACCOUNT = {
    "vocab_size": "the embedding's rows say it",
    "tensor_data_layout": "of files from before there were architectures",
    "embedding_length_out": "of models that embed texts",
    "features_length": "of models of sound",
    "decoder_start_token_id": "of models with an encoder",
    "decoder_block_count": "of models with an encoder",
    "n_deepstack_layers": "for images",
    "rope.scaling.finetuned": "how it was trained",
    "attention.temperature_length": "of an architecture that is refused",
    "{dense}_feat_in": "of models that embed texts",
    "{dense}_feat_out": "of models that embed texts",
}
OTHER_BUILDS = (
    *("expert_", "experts_", "moe_", "leading_dense", "interleave_moe", "swin_norm", "rescale_every"),
    *("time_mix", "time_decay", "token_shift", "full_attention_interval", "activation_sparsity", "altup."),
    *("attention.layer_norm_epsilon", "attention.group_norm", "attention.decay_", "attention.iclr_"),
    *("attention.value_residual", "attention.gate_lora", "attention.relative_buckets"),
    *("attention.key_length_mla", "attention.value_length_mla"),
)
"""Keys of architectures that are refused by name, and whose tensors are no part of a model of those there
are; experts have tests of their own."""


def header(architecture: str, **changes: Any) -> GGUFFile:
    values = {
        "context_length": 128,
        "embedding_length": 64,
        "block_count": 3,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.key_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **changes,
    }
    metadata = {f"{architecture}.{key}": value for key, value in values.items()}
    embedding = StoredTensor("token_embd.weight", (100, 64), "F32", np.zeros(25600, np.uint8))
    return GGUFFile(
        Path("m.gguf"),
        3,
        {"general.architecture": architecture, **metadata},
        {"token_embd.weight": embedding},
    )


def keys() -> list[str]:
    """All that the `gguf` package knows of models of text, below the architecture."""
    groups = (vars(group) for group in (gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.Rope))
    values = [value for group in groups for name, value in group.items() if not name.startswith("_")]
    return [value.removeprefix("{arch}.") for value in values if isinstance(value, str) and "{arch}" in value]


def test_every_key_of_a_gguf_file_is_read_or_refused_or_of_no_account(asked: set[str]) -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    for architecture in ("llama", "gemma3", "mistral3"):
        read_metadata(header(architecture, **yarn))
    left = {key for key in keys() if not key.startswith(OTHER_BUILDS)} - asked - KEYS_OF_NO_ACCOUNT.keys()
    assert left == set()


REFUSED = {
    "attention.causal": False,
    "attention.clamp_kqv": 8.0,
    "attention.max_alibi_bias": 8.0,
    "attention.scale": 0.1,
    "attention.temperature_scale": 0.1,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "logit_scale": 8.0,
    "residual_scale": 0.2,
    "embedding_scale": 12.0,
    "nextn_predict_layers": 1,
    "use_parallel_residual": True,
    "rope.dimension_sections": [4, 2, 2, 0],
    "rope.freq_base_swa": 777.0,
    "rope.scaling.yarn_ext_factor": 0.5,
    "attention.key_length_swa": 8,
    "attention.rope_pattern": [True, False, True],
    "swiglu_clamp_exp": [7.0, 7.0, 7.0],
    "attention.shared_kv_layers": 2,
    "embedding_length_per_layer_input": 256,
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_of_another_architecture_that_changes_the_result_is_refused_by_name(key: str) -> None:
    with pytest.raises(EngineError, match=rf"llama\.{key} ") as caught:
        read_metadata(header("llama", **{key: REFUSED[key]}))
    assert caught.value.code == "model_invalid"


def test_keys_that_change_nothing_are_let_be() -> None:
    plain = read_metadata(header("llama", **{"rope.freq_base": 10000.0})).spec
    neutral = {
        "attention.causal": True,
        "logit_scale": 1.0,
        "residual_scale": 0.0,
        "rope.dimension_sections": np.zeros(4, np.int32),
        "rope.freq_base": 10000.0,
        "rope.freq_base_swa": 10000.0,
        "attention.key_length_swa": 16,
        "attention.rope_pattern": [True] * 3,
        "nextn_predict_layers": 0,
        "pooling_type": 0,
    }
    assert read_metadata(header("llama", **neutral)).spec == plain


def test_a_file_beside_a_model_says_what_it_is() -> None:
    for changes in ({"general.type": "mmproj"}, {"general.architecture": "clip"}):
        file = header("llama")
        file.metadata.update(changes)
        with pytest.raises(EngineError, match="reads images or sound: give the file with its text part"):
            read_metadata(file)
    file = header("llama")
    file.metadata["general.type"] = "adapter"
    with pytest.raises(EngineError, match="LoRA"):
        read_metadata(file)
    file.metadata["general.type"] = "model"
    read_metadata(file)

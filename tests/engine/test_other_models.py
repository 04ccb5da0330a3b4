"""Models that nobody can chat with are refused by what they are; names with something in front are found."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.loading.other_models import what_it_is
from engine.models import families
from small_files import CONFIG, refuse, tensors, write_folder, write_gguf

KINDS = {
    "writes none": [
        "bert",
        "nomic-bert",
        "jina-bert-v3",
        "xlm-roberta",
        "modernbert",
        "gemma-embedding",
        "eurobert",
    ],
    "encoder and a decoder": ["t5", "mt5", "bart", "m2m_100", "t5gemma"],
    "sound": ["whisper", "wavtokenizer-dec", "seamless_m4t"],
    "pictures or videos": ["flux", "sd3", "sdxl", "qwen_image", "wan"],
    "diffusion": ["dream", "llada-moe"],
    "a state instead of attention": [
        *("mamba", "mamba2", "falcon_mamba", "rwkv7", "arwkv7", "lfm2", "lfm2moe", "qwen3next", "qwen3_next"),
        *("qwen35moe", "qwen3_5", "nemotron_h", "nemotron_h_moe", "kimi-linear", "granitehybrid", "jamba"),
    ],
    "(MLA)": ["deepseek2", "deepseek_v3", "kimi_k2", "glm-dsa", "glm4_moe_lite", "minicpm3", "mistral4"],
}


@pytest.mark.parametrize("said", KINDS)
def test_architectures_are_refused_by_what_they_are(tmp_path: Path, said: str) -> None:
    folder = write_folder(tmp_path / "m")
    for name in KINDS[said]:
        assert said in what_it_is(name), name
        (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": name}))
        assert f"config.json: model_type '{name}' is not supported: it" in refuse(folder)


def test_no_model_that_is_loaded_is_taken_for_another() -> None:
    for family in families.discover():
        for name in (*family.model_types, *family.architectures, *family.multimodal):
            assert what_it_is(name) == ""
    assert what_it_is("falcon") == what_it_is("lamma") == ""


def folder_with(folder: Path, **changes: Any) -> Path:
    write_folder(folder)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return folder


def test_models_that_embed_or_judge_texts_are_refused(tmp_path: Path) -> None:
    for name in (
        "Qwen2ForSequenceClassification",
        "LlamaForTokenClassification",
        "Qwen2ForProcessRewardModel",
    ):
        message = refuse(folder_with(tmp_path / name, architectures=[name]))
        assert f"architectures '{name}' is not supported: it computes embeddings or judges" in message
    for names in (
        ["LlamaForCausalLM"],
        ["Gemma3ForConditionalGeneration"],
        ["LlamaModel"],
        [],
        None,
        [5],
        "x",
    ):
        open_checkpoint(folder_with(tmp_path / "good", architectures=names))
    folder = folder_with(tmp_path / "st", architectures=["LlamaForCausalLM"])
    (folder / "modules.json").write_text("[]")
    assert "says its modules.json: it computes embeddings" in refuse(folder)


def test_gguf_files_that_pool_are_refused(tmp_path: Path) -> None:
    assert open_checkpoint(write_gguf(tmp_path / "a", tensors(), **{"llama.pooling_type": 0}))
    message = refuse(write_gguf(tmp_path / "b", tensors(), **{"llama.pooling_type": 3}))
    assert "llama.pooling_type 3 is not supported: it computes embeddings" in message


def test_a_gguf_file_with_a_vocabulary_alone_says_so(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert refuse(tmp_path / "v.gguf").endswith(
        "v.gguf holds a vocabulary and no weights; take a file with the model"
    )


@pytest.mark.parametrize(
    "front", ["", "language_model.", "model.language_model.", "module.", "_orig_mod.", "base_model.model."]
)
@pytest.mark.parametrize("inner", [True, False])
def test_tensors_are_found_whatever_is_in_front_of_their_names(
    tmp_path: Path, front: str, inner: bool
) -> None:
    folder = write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    plain = safetensors.numpy.load_file(file)
    plain["lm_head.weight"] = plain["model.embed_tokens.weight"] + 1
    named = {front + (name if inner else name.removeprefix("model.")): value for name, value in plain.items()}
    safetensors.numpy.save_file(named, file)
    bound = open_checkpoint(folder).tensors.bound
    assert len(bound) == len(plain)
    assert bound["head"][1].name == f"{front}lm_head.weight"


def test_what_is_none_of_the_models_is_still_refused_by_its_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    plain = safetensors.numpy.load_file(file)
    inner = {name.removeprefix("model."): value for name, value in plain.items()}
    safetensors.numpy.save_file({**inner, "score.weight": plain["model.norm.weight"]}, file)
    assert "tensor 'score.weight' is no part of" in refuse(folder)
    safetensors.numpy.save_file({**inner, "model.norm.weight": plain["model.norm.weight"]}, file)
    assert "'model.norm.weight' is stored twice, by two names" in refuse(folder)

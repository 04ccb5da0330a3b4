"""The text of Qwen3-VL: Qwen 3, as all positions of a text's token are the same."""

from dataclasses import replace

from . import qwen3

FAMILY = replace(
    qwen3.FAMILY,
    model_types=("qwen3_vl_text",),
    multimodal=("qwen3_vl",),
    architectures=("qwen3vl",),
    defaults={
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 128000,
    },
    windows=None,
    sections=True,
    rope_kinds={"mrope": "default"},
    rope_base=5e5,
)

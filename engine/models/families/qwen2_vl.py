"""The text of Qwen2-VL and Qwen2.5-VL: Qwen 2, as all positions of a text's token are the same."""

from dataclasses import replace

from ..family import Windows
from . import qwen2

SIZES = {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
}

FAMILY = replace(
    qwen2.FAMILY,
    model_types=("qwen2_vl_text", "qwen2_5_vl_text"),
    multimodal=("qwen2_vl", "qwen2_5_vl"),
    architectures=("qwen2vl",),
    defaults=SIZES,
    windows=Windows(default=4096, switch="use_sliding_window", first=("max_window_layers", 80)),
    sections=True,
    rope_kinds={"mrope": "default"},
    rope_base=1e6,
)

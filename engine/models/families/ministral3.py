"""Ministral 3 and Mistral Small 3.2 and later: queries grow with their position, as in Llama 4."""

from dataclasses import replace

from ..family import Windows
from . import mistral

FAMILY = replace(
    mistral.FAMILY,
    model_types=("ministral3",),
    architectures=("mistral3",),
    gguf_layout="interleaved",
    defaults={
        **mistral.SIZES,
        "vocab_size": 131072,
        "num_hidden_layers": 34,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
    },
    windows=Windows(default=None, same=True),
    temperature=("llama_4_scaling_beta", "attention.temperature_scale"),
)

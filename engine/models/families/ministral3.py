"""Ministral 3, and models with its text part: queries grow with their position, as in Llama 4."""

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
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    windows=Windows(default=None, same=True),
    temperature=("llama_4_scaling_beta", "attention.temperature_scale"),
)

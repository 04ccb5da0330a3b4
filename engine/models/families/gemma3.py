"""Gemma 3 (arXiv 2503.19786), text, alone or in a multimodal model.

Five of six layers have a window and a rotation of their own.
"""

from dataclasses import replace

from ..family import HEAD_NORMS, Option, Windows
from . import gemma2

FAMILY = replace(
    gemma2.FAMILY,
    model_types=("gemma3_text",),
    multimodal=("gemma3",),
    architectures=("gemma3",),
    defaults={**gemma2.FAMILY.defaults, "vocab_size": 262208, "max_position_embeddings": 131072},
    names={**gemma2.FAMILY.names, **HEAD_NORMS},
    windows=Windows(default=4096, every=("sliding_window_pattern", 6)),
    local_base=Option(10000.0, "rope_local_base_freq", "rope.freq_base_swa"),
    rope_base=1e6,
    options={
        **gemma2.FAMILY.options,
        "attention_scale": gemma2.attention_scale(largest=62),
        "score_cap": Option(None, "attn_logit_softcapping"),
        "logit_cap": Option(None, "final_logit_softcapping", "final_logit_softcapping"),
    },
)

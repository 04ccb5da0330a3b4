"""OLMoE (arXiv 2409.02060): a mixture of experts in each layer, norms on all queries and keys."""

from ..family import ATTENTION_BIASES, HEAD_NORMS, NAMES, Family
from ..mixture import Mixture

FAMILY = Family(
    model_types=("olmoe",),
    architectures=("olmoe",),
    defaults={"num_key_value_heads": 16, "rms_norm_eps": 1e-5},
    names={**NAMES, **HEAD_NORMS},
    bias_options={"attention_bias": ATTENTION_BIASES},
    norm_of_rows=True,
    fixed={"clip_qkv": None},
    mixture=Mixture(normalised=("norm_topk_prob", False), gguf_normalised=False),
)

"""Qwen 3 with experts (arXiv 2505.09388): as Qwen 3, a mixture of experts in most layers."""

from dataclasses import replace

from ..family import Windows
from ..mixture import Mixture, Sparse
from . import qwen3

FAMILY = replace(
    qwen3.FAMILY,
    model_types=("qwen3_moe",),
    multimodal=(),
    architectures=("qwen3moe",),
    defaults={"num_key_value_heads": 4},
    windows=Windows(default=4096, switch="use_sliding_window", same=True),
    mixture=Mixture(
        hidden="moe_intermediate_size",
        normalised=("norm_topk_prob", False),
        sparse=Sparse("decoder_sparse_step", "mlp_only_layers"),
    ),
)

"""Hunyuan of Tencent with experts, and a network that all rows go through."""

from dataclasses import replace

from ..mixture import EXPERTS, Mixture, shared
from . import hunyuan

FAMILY = replace(
    hunyuan.FAMILY,
    model_types=("hunyuan_v1_moe",),
    architectures=("hunyuan-moe",),
    mixture=Mixture(
        names={
            **EXPERTS,
            "router": (EXPERTS["router"][0], "mlp.gate.wg.weight"),
            **shared("shared_mlp"),
        },
        used="moe_topk",
        shared=("intermediate_size", "expert_shared_feed_forward_length"),
    ),
)

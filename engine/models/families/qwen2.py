"""Qwen 2 and 2.5 (arXiv 2407.10671): biases on queries, keys and values."""

from ..family import Family, Windows

WINDOWS = Windows(default=4096, switch="use_sliding_window", first=("max_window_layers", 28))

FAMILY = Family(
    model_types=("qwen2",),
    defaults={"num_key_value_heads": 32},
    architectures=("qwen2",),
    biases=("q_bias", "k_bias", "v_bias"),
    windows=WINDOWS,
)

"""ERNIE 4.5 of Baidu, dense: Llama's build, whose pairs of columns lie side by side."""

from ..family import ATTENTION_BIASES, MLP_BIASES, NAMES, Family

FAMILY = Family(
    model_types=("ernie4_5",),
    architectures=("ernie4_5",),
    layout="interleaved",
    gguf_layout="interleaved",
    defaults={
        "num_key_value_heads": 2,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    names={**NAMES, **MLP_BIASES},
    bias_options={"use_bias": (*ATTENTION_BIASES, *MLP_BIASES)},
    rope_base=500000.0,
)

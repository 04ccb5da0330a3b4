"""Llama 1 to 3.3, and others of the same build: SmolLM2; GGUF files of Mistral and Mixtral say llama, too."""

from ..family import ATTENTION_BIASES, MLP_BIASES, NAMES, Family
from ..mixture import Mixture

FAMILY = Family(
    model_types=("llama",),
    architectures=("llama",),
    gguf_layout="interleaved",
    names={**NAMES, **MLP_BIASES},
    bias_options={"attention_bias": ATTENTION_BIASES, "mlp_bias": tuple(MLP_BIASES)},
    mixture=Mixture(optional=True),
)

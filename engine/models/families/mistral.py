"""Mistral 7B and later models of Mistral's (arXiv 2310.06825), the text of Mistral Small 3.1 among them."""

from ..family import Family, Windows

SIZES = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
"""What a part of config.json leaves out where it is what the library takes anyway."""

FAMILY = Family(
    model_types=("mistral",),
    multimodal=("mistral3",),
    defaults=SIZES,
    windows=Windows(default=4096, same=True),
)

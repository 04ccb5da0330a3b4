"""Mistral 7B and later text models of Mistral's (arXiv 2310.06825), as safetensors."""

from ..family import Family, Windows

FAMILY = Family(model_types=("mistral",), windows=Windows(default=4096, same=True))

"""Ministral 8B: Mistral with windows in some of its layers."""

from dataclasses import replace

from ..family import Windows
from . import mistral

FAMILY = replace(mistral.FAMILY, model_types=("ministral",), multimodal=(), windows=Windows(default=4096))

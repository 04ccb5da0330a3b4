"""What the files of a model declare about it, whatever their format."""

from __future__ import annotations

from typing import NamedTuple

from ..models.spec import ModelSpec


class Declared(NamedTuple):
    """biases: roles of the biases that must be there. tied: the head is the embedding.

    tied is None where nothing is said: then a model is tied exactly if it has no head of its own.
    """

    spec: ModelSpec
    biases: frozenset[str]
    tied: bool | None = None

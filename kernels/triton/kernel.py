"""What a kernel is to the backend: a function, its twin in plain torch, and inputs to compare them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..reference.operations import ReferenceOperations
from ..step import Step

Function = Callable[..., Any]
"""Tensors (and handles) in, a tensor or a tuple of them out; or None, and what the arguments hold changes."""

Trial = Callable[[Function], Sequence[Tensor]]
"""Calls the function it is given with arguments of its own: what comes of that, or what it has changed."""

PLAIN = ReferenceOperations(Step.of(), None, torch.device("cpu"))
"""Operations in plain torch: those that look at nothing but their arguments serve on any device."""


class Kernel(NamedTuple):
    """A kernel of the backend.

    name: as in `Operations`, also what people see. twin: the same in plain torch, for any device. trials:
    calls in which the two have to agree, odd sizes among them, with the numbers of `Draw`. tolerance: the
    largest difference of a value, in parts of the result's largest; 0: the bits are the same.
    """

    name: str
    compute: Function
    twin: Function
    trials: Callable[[Draw], Iterator[Trial]]
    tolerance: float = 0.0


def called_with(*arguments: Any) -> Trial:
    """A trial that calls a function with these."""

    def trial(function: Function) -> Sequence[Tensor]:
        result = function(*arguments)
        return [result] if isinstance(result, Tensor) else result

    return trial


class Draw:
    """Random tensors on a device, the same for the same seed on all of them."""

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        self.device = device
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Float32 values, normally distributed."""
        values = self.generator.standard_normal(shape, np.float32) * np.float32(scale)
        return torch.from_numpy(values).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Int32 values from low to below high."""
        return torch.from_numpy(self.generator.integers(low, high, shape).astype(np.int32)).to(self.device)

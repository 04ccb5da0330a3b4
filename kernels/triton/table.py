"""Every kernel of the backend, by name."""

from __future__ import annotations

from collections.abc import Iterator

from . import attention, cache, elementwise, experts, linear, matrix, norm, rope, sampler
from .kernel import Draw, Kernel, Trial


def _untried(draw: Draw) -> Iterator[Trial]:
    """Plain torch already."""
    return iter(())


KERNELS: tuple[Kernel, ...] = (
    Kernel("embedding", matrix.embedding, matrix.embedding, _untried),
    Kernel("linear", linear.linear, linear.linear, _untried),
    Kernel("experts", experts.mixture, experts.mixture, _untried),
    attention.KERNEL,
    cache.KERNEL,
    rope.KERNEL,
    *norm.KERNELS,
    *elementwise.KERNELS,
    sampler.KERNEL,
)

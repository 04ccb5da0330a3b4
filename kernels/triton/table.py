"""Every kernel of the backend, by name."""

from __future__ import annotations

from . import attention, cache, elementwise, embedding, experts, linear, norm, rope, sampler
from .kernel import Kernel

KERNELS: tuple[Kernel, ...] = (
    embedding.KERNEL,
    linear.KERNEL,
    experts.KERNEL,
    attention.KERNEL,
    cache.KERNEL,
    rope.KERNEL,
    *norm.KERNELS,
    *elementwise.KERNELS,
    sampler.KERNEL,
)

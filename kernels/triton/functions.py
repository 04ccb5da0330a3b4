"""The functions that a backend computes with: kernels, or in their place plain torch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triton.errors import TritonError

from .kernel import Function, Kernel

log = logging.getLogger(__name__)


class Functions(Mapping[str, Function]):
    """By the names of kernels. failed: which are replaced by their twins, and why.

    That a kernel can't be compiled for the sizes of a model, or takes more than a processor has, is found out
    when it is launched first; so it is replaced then.
    """

    def __init__(self, kernels: Iterable[Kernel], failed: Mapping[str, str]) -> None:
        self.failed = dict(failed)
        self._kernels = {kernel.name: kernel for kernel in kernels}
        self._use = {
            name: kernel.twin if name in failed else self._guarded(kernel)
            for name, kernel in self._kernels.items()
        }

    def __getitem__(self, name: str) -> Function:
        return self._use[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._use)

    def __len__(self) -> int:
        return len(self._use)

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the kernels that plain torch computes in place of."""
        return tuple(name for name in self._use if name in self.failed)

    def _guarded(self, kernel: Kernel) -> Function:
        def compute(*arguments: Any) -> Any:
            try:
                return kernel.compute(*arguments)
            except TritonError as error:
                lines = str(error).strip().splitlines() or [""]
                reason = f"{type(error).__name__}: {lines[-1]}"
                log.warning("%s: %s; plain torch computes it", kernel.name, reason)
                self.failed[kernel.name] = reason
                self._use[kernel.name] = kernel.twin
                return kernel.twin(*arguments)

        return compute

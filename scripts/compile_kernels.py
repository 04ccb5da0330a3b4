"""Compile the Triton kernels for GPUs that need not be there, with the arguments of the start-up self-check.

    python scripts/compile_kernels.py [--capability 80 90 100] [--kernels linear experts ...]

The interpreter takes what the compiler refuses, and the other way round; this asks the compiler. For each
kernel: how many variants there are, and the seconds they took. Exit code 1: one can't be compiled.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import torch


class NoGpu:
    """A driver of Triton's without a GPU: kernels are compiled for a capability, never launched."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        """What is compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        """The only one."""
        return self.capability

    def get_current_stream(self, device: int) -> int:
        """None."""
        return 0


def compile_only() -> None:
    """From now on a call of a kernel compiles it for the device that Triton's driver has, and that is all."""
    from triton.runtime.jit import JITFunction

    def getitem(kernel: Any, grid: Any) -> Any:
        return lambda *args, **options: kernel.run(*args, grid=grid, warmup=True, **options)

    JITFunction.__getitem__ = getitem


def main() -> int:
    """Compile, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--capability", type=int, nargs="+", default=[80, 90], help="compute capabilities")
    parser.add_argument("--kernels", nargs="+", help="names of kernels; all, if not given")
    arguments = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    from triton.runtime import driver

    from kernels.triton.kernel import Draw
    from kernels.triton.table import KERNELS

    compile_only()
    failed = False
    for capability in arguments.capability:
        driver.set_active(NoGpu(capability))
        for kernel in KERNELS:
            if arguments.kernels and kernel.name not in arguments.kernels:
                continue
            started, trials, error = time.perf_counter(), 0, ""
            try:
                for trial in kernel.trials(Draw(torch.device("cpu"))):
                    trial(kernel.compute)
                    trials += 1
            except Exception as problem:  # whatever a compiler raises
                error = f": {type(problem).__name__}: {problem}"
                failed = True
            seconds = time.perf_counter() - started
            print(f"sm_{capability} {kernel.name}: {trials} trials, {seconds:.1f} s{error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

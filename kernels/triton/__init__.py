"""The operations as Triton kernels, for CUDA GPUs. Each has a twin in plain torch with the same signature.

Triton compiles for a GPU, or, where TRITON_INTERPRET=1 is set before this is imported, interprets a kernel
with numpy: so every kernel is tested on a CPU. That computes in no bfloat16; kernels widen what they load.
"""

from __future__ import annotations

import os
from importlib import util

RESERVED_BYTES = 1 << 30
"""Of a GPU's free memory that no cache gets: for graphs, and for what a step computes with."""


def interpreted() -> bool:
    """Whether kernels are interpreted, on any device, instead of compiled for a GPU: as Triton reads it."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def unavailable_reason() -> str:
    """What is missing for this backend, "" if nothing is. Triton is imported, torch is not."""
    missing = [name for name in ("torch", "triton") if util.find_spec(name) is None]
    return f"{' and '.join(missing)} can't be imported" if missing else _import_problem()


def _import_problem() -> str:
    """What is wrong with the Triton that is installed: a part is missing or broken, or it is too old."""
    try:
        from triton import knobs  # noqa: F401 (of 3.4 and newer)
        from triton.errors import TritonError  # noqa: F401
    except Exception as error:  # whatever a broken installation brings about
        said = str(error).strip().partition("\n")[0]
        return f"triton can't be imported ({type(error).__name__}: {said})"
    return ""

"""The operations as Triton kernels, for CUDA GPUs. Each has a twin in plain torch with the same signature.

Triton compiles for a GPU, or, where TRITON_INTERPRET=1 is set before this is imported, interprets a kernel
with numpy: so every kernel is tested on a CPU. That computes in no bfloat16; kernels widen what they load.
"""

from __future__ import annotations

from importlib import util

RESERVED_BYTES = 1 << 30
"""Of a GPU's free memory that no cache gets: for graphs, and for what a step computes with."""


def unavailable_reason() -> str:
    """What is missing for this backend, "" if nothing is; nothing is imported."""
    missing = [name for name in ("torch", "triton") if util.find_spec(name) is None]
    return f"{' and '.join(missing)} can't be imported" if missing else ""

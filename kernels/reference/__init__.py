"""Every operation in plain torch, on any device: the measure of other backends, and the fallback."""

import os

# Set before torch loads libgomp: its threads wait for each other in a busy loop, by default for so long that
# beside other programs two of them are slower than one. This many rounds take less than a millisecond.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from .backend import ReferenceBackend

__all__ = ["ReferenceBackend"]

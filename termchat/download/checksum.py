"""The sha256 of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .progress import Meter


def sha256_of(path: Path, meter: Meter) -> str:
    """In hexadecimal digits, lower case. OSError."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        while data := file.read(1 << 20):
            digest.update(data)
            done += len(data)
            meter.report("verify", done, size)
    return digest.hexdigest()

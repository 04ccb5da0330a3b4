"""What gpu_check.py finds, line by line, and what it looks at."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIGA = 1e9


@dataclass(slots=True)
class Report:
    """Lines of the table, kept in a file as they come. end: when the time is over."""

    path: Path
    end: float
    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(self, section: str, name: str, value: Any, unit: str = "", note: str = "") -> None:
        """A line that is known now."""
        self.lines.append({"section": section, "name": name, "value": value, "unit": unit, "note": note})
        shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
        print(f"{section:<12} {name:<44} {shown:>14} {unit:<9} {note}".rstrip(), flush=True)
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps({"lines": self.lines}, indent=1))
        beside.replace(self.path)

    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured.

    small: the shape for what has to be right. prompts, reply: tokens there. measured: shapes and formats.
    streams, decoded: how many, and tokens of each. rows: of single products. kernels, variants: those that
    are checked; no kernels: all. copied: bytes of the copy. context: tokens.
    """

    small: Any
    measured: tuple[tuple[Any, str], ...]
    prompts: tuple[int, ...]
    reply: int
    streams: tuple[int, ...]
    decoded: int
    prefills: tuple[int, ...]
    rows: tuple[int, ...]
    kernels: tuple[str, ...]
    variants: tuple[str, ...]
    copied: int
    context: int


def sizes(tiny: bool) -> Sizes:
    """Of a GPU, or of a machine that interprets kernels."""
    from gpu_models import Shape

    if tiny:
        small = Shape("tiny", 32, 1, 2, 1, 16, 48, 96, context=128)
        return Sizes(
            small=small,
            measured=((small, "q8"),),
            prompts=(9, 5),
            reply=2,
            streams=(2,),
            decoded=3,
            prefills=(20,),
            rows=(1,),
            kernels=("rms_norm", "scale"),
            variants=("batched",),
            copied=1 << 20,
            context=96,
        )
    dense = Shape("8B", 4096, 32, 32, 8, 128, 14336, 128256)
    mixture = Shape("30B-A3B", 2048, 24, 32, 4, 128, 768, 151936, experts=128, used=8)
    return Sizes(
        small=Shape("small", 512, 4, 8, 2, 64, 1024, 1024),
        measured=((dense, "bf16"), (dense, "q8"), (dense, "q4"), (mixture, "q4")),
        prompts=(300, 47, 18, 129),
        reply=24,
        streams=(1, 8, 32, 64, 256),
        decoded=64,
        prefills=(2048, 8192),
        rows=(1, 16, 64, 2048),
        kernels=(),
        variants=("batched", "chunked", "prefix hit", "preempted", "drafted", "without graphs"),
        copied=1 << 30,
        context=10240,
    )

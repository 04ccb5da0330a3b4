"""The machine as `termchat doctor` sees it: processor, libraries, GPUs."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CliError
from .report import Report

if TYPE_CHECKING:
    from ...setup import Setup

LIBRARIES = ("torch", "numpy", "tokenizers", "textual", "safetensors", "gguf")
"""Without these little works."""

INSTRUCTION_SETS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimd",
)
"""Names as /proc/cpuinfo has them; asimd is aarch64's."""


def examine_machine(report: Report) -> None:
    """Versions, processor, and libraries that are missing."""
    from kernels.machine import processor, usable_cpus

    report.facts |= {
        "termchat": _version("termchat"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "instructions": [name for name in INSTRUCTION_SETS if name in _cpu("flags", "Features").split()],
        "processors": usable_cpus(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }
    for name, version in report.facts["libraries"].items():
        if version is None:
            report.problem(
                f"{name} is not installed",
                "it belongs to termchat",
                "pip install --force-reinstall termchat",
                broken=True,
            )


def examine_gpus(report: Report, setup: Setup, flags: dict[str, Any]) -> None:
    """Every card, with the reason why it is used or not; those that nobody has set aside are problems."""
    from engine import EngineConfig, list_gpus, select_backend

    try:
        gpus = list_gpus(select_backend(EngineConfig(model="", **{**setup.config.engine, **flags})))
    except ValueError as error:
        raise CliError("usage", str(error)) from error
    report.facts["gpus"] = [card._asdict() for card in gpus.cards]
    if gpus.driver:
        report.facts["libraries"]["driver"] = gpus.driver
    for card in gpus.cards:
        if not card.used and not card.wanted:
            report.problem(f"the GPU {card.name} is not used", card.why, card.mend)
        if card.memory_errors:
            report.problem(
                f"the memory of the GPU {card.name} is faulty",
                f"it had {card.memory_errors} errors that could not be corrected since it was last reset",
                "reset it (nvidia-smi --gpu-reset) or restart the machine; if they come again it is broken",
            )


def _cpu(*names: str) -> str:
    """A field of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.strip() in names), "")


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

"""Whether there is a CUDA GPU to compute on; where one is there but of no use, why, and what mends it."""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import NamedTuple

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/version")


class Obstacle(NamedTuple):
    """Why a GPU that is there is of no use. wanted: somebody has arranged it so, so it is no news."""

    why: str
    mend: str
    wanted: bool = False


def devices() -> list[str]:
    """NVIDIA's device files, whatever their numbers."""
    return sorted(str(path) for path in _DEVICES.glob("nvidia[0-9]*"))


def ruled_out() -> Obstacle | None:
    """What keeps CUDA from being used, as far as that is known without torch, whose import takes a second."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and (not visible.strip() or visible.strip().startswith("-1")):
        return Obstacle(
            f"CUDA_VISIBLE_DEVICES={visible} hides it", "unset CUDA_VISIBLE_DEVICES to use it", wanted=True
        )
    torch = util.find_spec("torch")
    if torch is None or torch.origin is None:
        return Obstacle("torch is not installed", "install torch with CUDA, see pytorch.org")
    version = Path(torch.origin).with_name("version.py")
    try:
        text = version.read_text(errors="replace")
    except OSError:
        return None
    if re.search(r"^cuda\b[^=\n]*=\s*None", text, re.MULTILINE):
        return Obstacle(
            "the torch that is installed is built without CUDA", "install torch with CUDA, see pytorch.org"
        )
    return None


@lru_cache(maxsize=1)
def obstacle() -> Obstacle | None:
    """What keeps CUDA from being used; None: nothing does. Asks torch if it must."""
    known = ruled_out()
    if known is not None:
        return known
    mend = "update the NVIDIA driver, and restart the machine if that was done just now"
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import torch

            if torch.cuda.is_available():
                torch.zeros(1, device="cuda").add_(1).item()  # a GPU can be listed and not compute
                return None
            reasons = [str(warning.message) for warning in said] or ["torch finds no GPU"]
    except Exception as error:  # whatever a broken driver or build brings about: the CPU computes
        reasons = [str(error) or type(error).__name__]
    return Obstacle(f"{_sentence(reasons[-1])}{_driver()}", mend)


def _sentence(text: str) -> str:
    """The first line of what torch says, without where in its code it was said."""
    lines = text.strip().splitlines()
    return lines[0].split(" (Triggered internally")[0].rstrip(". ") if lines else text


def _driver() -> str:
    try:
        found = re.search(r"Kernel Module\D*([\d.]+)", _DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return f" (driver {found[1]})" if found else ""

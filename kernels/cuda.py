"""Which CUDA GPU to compute on; where one is there but of no use, why, and what mends it."""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import NamedTuple

from . import driver
from .driver import RESET, SHARE, Card, Driver, Obstacle
from .visible import VARIABLE, hides_all, visible

__all__ = ["Gpu", "Obstacle", "choose", "devices", "ruled_out", "survey", "why_not"]

_DEVICES = Path("/dev")
_WINDOWS = Path("/usr/lib/wsl/lib/libcuda.so.1")
_VERSION = Path("/proc/driver/nvidia/version")

_INSTALL = "install torch with CUDA, see pytorch.org"
_UPDATE = "update the NVIDIA driver, and restart the machine if that was done just now"
_CAUSES = (
    (
        r"no kernel image|not compatible|no longer supports",
        None,
        "install a torch built for it, see pytorch.org",
    ),
    (r"busy or unavailable|exclusive", "another program has it for itself", SHARE),
    (r"\bECC\b", None, RESET),
    (r"out of memory", "other programs have taken its memory", "end one of them"),
    (r"unknown error|not yet initialized|unspecified launch", None, f"restart the machine, or {RESET}"),
)
"""What torch says of a card that does not compute, why that is where it does not say so, what mends it."""


class Gpu(NamedTuple):
    """A card of this machine. number: CUDA's, in cuda:N; None where CUDA does not see it."""

    card: Card
    number: int | None = None
    obstacle: Obstacle | None = None


class Chosen(NamedTuple):
    """The GPU to compute on, or what keeps the best one from being used. others: cards that were tried first
    and did not compute.
    """

    gpu: Gpu | None
    obstacle: Obstacle | None = None
    others: tuple[Gpu, ...] = ()


def devices() -> list[str]:
    """NVIDIA's device files, whatever their numbers; under Windows (WSL) all GPUs have one in common."""
    files = sorted(str(path) for path in _DEVICES.glob("nvidia[0-9]*"))
    windows = str(_DEVICES / "dxg")
    return files or ([windows] if os.path.exists(windows) and os.path.exists(_WINDOWS) else [])


def ruled_out() -> Obstacle | None:
    """What keeps CUDA from being used, as far as that is known without torch, whose import takes a second."""
    hidden = hides_all(os.environ.get(VARIABLE))
    if hidden is not None:
        return hidden
    torch = util.find_spec("torch")
    if torch is None or torch.origin is None:
        return Obstacle("torch is not installed", _INSTALL)
    try:
        text = Path(torch.origin).with_name("version.py").read_text(errors="replace")
    except OSError:
        text = ""
    built = re.search(r"^cuda\b[^=\n]*=\s*(?:(None)|['\"](\d+))", text, re.MULTILINE)
    if built and built[1] and not re.search(r"^hip\b[^=\n]*=\s*['\"]", text, re.MULTILINE):
        return Obstacle("the torch that is installed is built without CUDA", _INSTALL)
    return _ruled_out_by_driver(driver.read(), int(built[2] or 0) if built else 0) if devices() else None


def _ruled_out_by_driver(found: Driver, wanted: int) -> Obstacle | None:
    """What the driver knows. wanted: the major version of CUDA that torch is built for, 0: not known.

    Drivers serve all minor versions of a major one (CUDA compatibility, minor version compatibility). Where
    nothing can be asked torch has the word: it may compute all the same.
    """
    if found.cuda and found.cuda // 1000 < wanted:
        has = f"{found.cuda // 1000}.{found.cuda % 1000 // 10}"
        mend = f"{_UPDATE}; or install torch for CUDA {found.cuda // 1000}, see pytorch.org"
        return Obstacle(
            f"the NVIDIA driver{_known(found)} is too old: it has CUDA {has}, and torch wants {wanted}", mend
        )
    if not found.cards:
        return None
    seen = visible(found.cards, os.environ.get(VARIABLE))
    if seen.obstacle is not None or all(card.obstacle for card in seen.cards):
        return seen.obstacle or seen.cards[0].obstacle
    return None


def choose() -> Chosen:
    """The GPU with the most free memory of those that compute. Asks torch if it must.

    Cards are tried in that order, so that nothing is taken of the memory of one that will not be used.
    """
    if not devices():
        return Chosen(None)
    known = ruled_out()
    if known is not None:
        return Chosen(None, known)
    silent = _torch_is_silent()
    if silent is not None:
        return Chosen(None, silent)
    tried: list[Gpu] = []
    for gpu in sorted(_numbered(driver.read()), key=lambda gpu: -gpu.card.free):
        obstacle = gpu.card.obstacle or _computes(gpu.number)
        if obstacle is None:
            return Chosen(gpu, None, tuple(tried))
        tried.append(gpu._replace(obstacle=obstacle))
    return Chosen(None, tried[0].obstacle if tried else Obstacle("torch finds no GPU", _UPDATE), tuple(tried))


def survey() -> tuple[Gpu, ...]:
    """All cards of this machine, with what keeps each of them from being used; each is tried."""
    if not devices():
        return ()
    found = driver.read()
    cards = found.cards or tuple(Card(file) for file in devices())
    known = ruled_out() or _torch_is_silent()
    if known is not None:
        return tuple(Gpu(card, None, card.obstacle or known) for card in cards)
    seen = [gpu._replace(obstacle=gpu.card.obstacle or _computes(gpu.number)) for gpu in _numbered(found)]
    named = {gpu.card.uuid for gpu in seen}
    return (
        *seen,
        *(Gpu(card, None, _hidden(card)) for card in cards if found.cards and card.uuid not in named),
    )


def why_not(number: int) -> Obstacle | None:
    """What keeps the GPU of this number from being used, for whoever asks for it by name; None: nothing."""
    known = ruled_out() or _torch_is_silent()
    if known is not None:
        return known
    count = _count()
    if number >= count:
        there = "only GPU 0 is here" if count == 1 else f"only {count} GPUs are here, numbered from 0"
        return Obstacle(there, "take one of them, or leave --device at auto")
    return _computes(number)


def _hidden(card: Card) -> Obstacle:
    value = os.environ.get(VARIABLE)
    if value is not None:
        return Obstacle(f"{VARIABLE}={value[:80]} hides it", f"unset {VARIABLE} to use it", wanted=True)
    if card.parent:
        return Obstacle("a program uses one slice, and this is another", f"{VARIABLE}={card.uuid} takes it")
    return card.obstacle or Obstacle("CUDA does not show it", _UPDATE)


def _numbered(found: Driver) -> list[Gpu]:
    """The cards as torch numbers them: by identifier where it tells that, else by their order."""
    import torch

    seen = visible(found.cards, os.environ.get(VARIABLE)).cards
    gpus = []
    for number in range(_count()):
        properties = torch.cuda.get_device_properties(number)
        uuid = str(getattr(properties, "uuid", "")) or "?"
        same = [card for card in seen if uuid in card.uuid] or [card for card in seen if uuid in card.parent]
        named = [card for card in seen if card.name == properties.name]
        card = same[0] if same else seen[number] if len(named) == len(seen) > number else None
        gpus.append(Gpu(card or Card(properties.name, total=properties.total_memory), number))
    return gpus


def _count() -> int:
    import torch

    return torch.cuda.device_count()


@lru_cache(maxsize=1)
def _torch_is_silent() -> Obstacle | None:
    """Why torch finds no GPU at all."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import torch

            if torch.cuda.is_available():
                return None
            reasons = [str(warning.message) for warning in said]
    except Exception as error:  # whatever a broken driver or build brings about: the CPU computes
        reasons = [str(error) or type(error).__name__]
    found = driver.read()
    if not reasons and found.obstacle is not None:
        return found.obstacle
    return _cause(reasons[-1] if reasons else "torch finds no GPU", found)


@lru_cache(maxsize=64)
def _computes(number: int | None) -> Obstacle | None:
    """Try a GPU: it can be listed and not compute."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch

            torch.zeros(1, device=f"cuda:{number}").add_(1).item()
            return None
    except Exception as error:
        return _cause(str(error) or type(error).__name__, driver.read())


def _cause(said: str, found: Driver) -> Obstacle:
    sentence = _sentence(said)
    for pattern, why, mend in _CAUSES:
        if re.search(pattern, sentence, re.IGNORECASE):
            return Obstacle(f"{why} ({sentence})" if why else sentence, mend)
    return Obstacle(f"{sentence}{_known(found)}", _UPDATE)


def _sentence(text: str) -> str:
    """The first line of what torch says, without where in its code it was said."""
    lines = text.strip().splitlines()
    return lines[0].split(" (Triggered internally")[0].rstrip(". ") if lines else text


def _known(found: Driver) -> str:
    version = found.version
    if not version:
        try:
            said = re.search(r"Kernel Module\D*([\d.]+)", _VERSION.read_text(errors="replace"))
        except OSError:
            said = None
        version = said[1] if said else ""
    return f" (driver {version})" if version else ""

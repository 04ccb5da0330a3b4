"""Does every kernel compute what its twin does, on this device? What fails is replaced, and said.

What was found is kept in a file, by everything that it may depend on: so a start usually costs nothing. There
too stands that a kernel made the device fail: then plain torch computes everything from the next start on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from triton.errors import TritonError

from ..program import DeviceFault
from . import interpreted
from .kernel import Draw, Kernel

log = logging.getLogger(__name__)


class Finding(NamedTuple):
    """What checks found. failed: by kernel, why it is replaced. fault: what a GPU said when it failed.
    complete: there is nothing to check at the next start.
    """

    failed: Mapping[str, str]
    exact: bool = True
    fault: str = ""
    complete: bool = True


def difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference of two results, in parts of the largest value; inf where one has NaN alone."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return math.inf
    if torch.equal(found, wanted):
        return 0.0
    a, b = found.double(), wanted.double()
    if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a.isinf(), b.isinf()):
        return math.inf
    a, b = (x.nan_to_num(0.0, 0.0, 0.0) for x in (a, b))
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


class Complaint(NamedTuple):
    """Why a kernel is not to be used; "" if nothing speaks against it.

    lasting: it is the kernel's own. Else where it was tried is to blame: there is no C compiler, a full disk.
    """

    why: str
    lasting: bool = True


def complaint(kernel: Kernel, device: torch.device) -> Complaint:
    """What speaks against a kernel on a device."""
    for trial in kernel.trials(Draw(device)):
        try:
            found, wanted = trial(kernel.compute), trial(kernel.twin)
            worst = max(starmap(difference, zip(found, wanted, strict=True)), default=0.0)
        except Exception as error:  # whatever a compiler or a driver raises
            said = str(error).strip().partition("\n")[0]
            return Complaint(
                f"{type(error).__name__}: {said}", isinstance(error, TritonError) or _FAULT in said
            )
        if not worst <= kernel.tolerance:
            return Complaint(f"its results are off by {worst:.1e} of the largest value")
    return Complaint("")


_FAULT = "CUDA error"


class CheckFault(DeviceFault):
    """A kernel made the device fail when it was checked. failed: what is known of it and of those before."""

    def __init__(self, name: str, failed: dict[str, str]) -> None:
        why = failed[name]
        super().__init__(f"the GPU kernel {name} failed: {why}; from the next start on it is not used")
        self.failed = failed


class Checked(NamedTuple):
    """Kernels that are not to be used, by name, and why: failed now, and lasting: also at the next start."""

    failed: dict[str, str]
    lasting: dict[str, str]


def check(
    kernels: Sequence[Kernel],
    device: torch.device,
    known: Mapping[str, str] = MappingProxyType({}),
    told: Callable[[str], None] = lambda words: None,
) -> Checked:
    """Of the kernels that are not to be used: why. known: those of which that is clear already. told: which
    one is checked.

    CheckFault: the device failed, so this process can compute nothing there any more.
    """
    failed, lasting = dict(known), dict(known)
    for number, kernel in enumerate(kernels, 1):
        if kernel.name in failed:
            continue
        told(f"checking the GPU's kernels, once for each driver: {kernel.name}, {number} of {len(kernels)}")
        found = complaint(kernel, device)
        if found.why:
            failed[kernel.name] = found.why
            log.warning("%s on %s: %s; plain torch computes it", kernel.name, device, found.why)
        if found.why and found.lasting:
            lasting[kernel.name] = found.why
            if _FAULT in found.why:
                raise CheckFault(kernel.name, lasting)
    return Checked(failed, lasting)


def code_version() -> str:
    """A digest of the kernels' source and of what they take from the modules around them."""
    digest = hashlib.blake2b(digest_size=8)
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.parent.glob("*.py"), *here.parent.glob("reference/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def driver_version() -> str:
    """Of NVIDIA's kernel module, "" where there is none."""
    try:
        return Path("/proc/driver/nvidia/version").read_text(errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return ""


def identity(device: torch.device) -> str:
    """What findings depend on: driver, GPU, torch, triton, whether it compiles, and this code."""
    import triton

    gpu = "cpu"
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        gpu = f"{about.name} {about.major}.{about.minor} {about.multi_processor_count} {about.total_memory}"
    parts = (driver_version(), gpu, torch.__version__, triton.__version__, interpreted(), code_version())
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=12).hexdigest()


class Record:
    """The file that keeps a device's findings; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, device: torch.device) -> None:
        self.path = None if folder is None else folder / f"kernels-{identity(device)}.json"

    def read(self) -> Finding | None:
        """What was found earlier; None: nothing, or the file is of no use."""
        if self.path is None:
            return None
        try:
            data = json.loads(self.path.read_bytes()[: 1 << 16])
            failed, exact, fault, complete = (data[name] for name in Finding._fields)
            if isinstance(exact, bool) and isinstance(fault, str) and isinstance(complete, bool):
                return Finding({str(name): str(why) for name, why in failed.items()}, exact, fault, complete)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def write(self, finding: Finding) -> None:
        """Keep it, whole or not at all; where that can't be, the next start checks again."""
        if self.path is None:
            return
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(finding._asdict()))
            beside.replace(self.path)
        except OSError as error:
            log.info("%s: %s", self.path, error)
            with suppress(OSError):
                beside.unlink()

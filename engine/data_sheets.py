"""Memory, bandwidth and rates of processors, as their makers' data sheets have them.

Rates are dense: data sheets of NVIDIA's often have twice as much, which holds for sparse matrices. What a
data sheet does not say is None.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .types import EngineError

GB, TB, TERA = 10**9, 10**12, 10**12


class Machine(NamedTuple):
    """What computes. memory: bytes. bandwidth: bytes a second. bf16, int8: multiplications and additions a
    second, each counted by itself. source: where that is from. kind: a GPU with memory of its own, one that
    shares the system's, a CPU, or the machine that this runs on, with the memory that is free there.
    """

    name: str
    memory: int
    bandwidth: float | None
    bf16: float | None
    int8: float | None
    source: str
    kind: Literal["gpu", "unified", "cpu", "here"] = "gpu"


def _gpu(
    name: str, gigabytes: int, gbs: float, bf16: float | None, int8: float | None, source: str
) -> Machine:
    tera = [None if rate is None else rate * TERA for rate in (bf16, int8)]
    return Machine(name, gigabytes * GB, gbs * GB, tera[0], tera[1], source)


def _cpu(name: str, gigabytes: int, channels: int, transfers: int, source: str) -> Machine:
    """transfers: millions a second, of 8 bytes on each channel; memory: the most it takes."""
    return Machine(name, gigabytes * GB, channels * transfers * 8e6, None, None, source, "cpu")


_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet"
_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet"
_ADA = "NVIDIA Ada GPU architecture white paper"
_GA102 = "NVIDIA Ampere GA102 GPU architecture white paper"

MACHINES = (
    _gpu("B200", 180, 8000, 2250, 4500, "NVIDIA DGX B200 data sheet, an eighth of it"),
    _gpu("H200", 141, 4800, 989, 1979, "NVIDIA H200 Tensor Core GPU data sheet"),
    _gpu("H100", 80, 3350, 989, 1979, f"{_HOPPER} (SXM)"),
    _gpu("H100 PCIe", 80, 2000, 756, 1513, f"{_HOPPER} (PCIe)"),
    _gpu("H100 NVL", 94, 3900, 835, 1671, f"{_HOPPER} (NVL)"),
    _gpu("A100 80GB", 80, 2039, 312, 624, f"{_AMPERE} (SXM)"),
    _gpu("A100 80GB PCIe", 80, 1935, 312, 624, f"{_AMPERE} (PCIe)"),
    _gpu("A100 40GB", 40, 1555, 312, 624, f"{_AMPERE} (40 GB)"),
    _gpu("A40", 48, 696, 149.7, 299.3, "NVIDIA A40 data sheet"),
    _gpu("A10", 24, 600, 125, 250, "NVIDIA A10 Tensor Core GPU data sheet"),
    _gpu("L40S", 48, 864, 362, 733, "NVIDIA L40S data sheet"),
    _gpu("L4", 24, 300, 121, 242, "NVIDIA L4 Tensor Core GPU data sheet"),
    _gpu("RTX 6000 Ada", 48, 960, 364.2, 728.5, _ADA),
    _gpu("RTX A6000", 48, 768, 154.8, 309.7, _GA102),
    _gpu("RTX 5090", 32, 1792, 209.5, 838, "NVIDIA RTX Blackwell GPU architecture white paper"),
    _gpu("RTX 4090", 24, 1008, 165.2, 660.6, _ADA),
    _gpu("RTX 4080", 16, 716.8, 97.5, 389.9, _ADA),
    _gpu("RTX 3090", 24, 936, 71, 284, _GA102),
    _gpu("MI300X", 192, 5300, 1307.4, 2614.9, "AMD Instinct MI300X data sheet"),
    _gpu("MI250X", 128, 3277, 383, 383, "AMD Instinct MI250X data sheet"),
    _gpu("MI210", 64, 1638, 181, 181, "AMD Instinct MI210 data sheet"),
    _gpu("RX 7900 XTX", 24, 960, 122.8, 122.8, "AMD Radeon RX 7900 XTX specifications"),
    _gpu("M2 Ultra", 192, 800, None, None, "Apple Mac Studio (2023) specifications")._replace(kind="unified"),
    _gpu("M4 Max", 128, 546, None, None, "Apple MacBook Pro (2024) specifications")._replace(kind="unified"),
    _cpu("Xeon Platinum 8480+", 4000, 8, 4800, "Intel ARK, Xeon Platinum 8480+: 8 channels of DDR5-4800"),
    _cpu("EPYC 9654", 6000, 12, 4800, "AMD EPYC 9004 series data sheet: 12 channels of DDR5-4800"),
    _cpu("Core i9-13900K", 128, 2, 5600, "Intel ARK, Core i9-13900K: 2 channels of DDR5-5600"),
    _cpu("Ryzen 9 7950X", 128, 2, 5200, "AMD Ryzen 9 7950X specifications: 2 channels of DDR5-5200"),
)


_MAKERS = ("nvidia", "geforce", "amd", "radeon", "instinct", "intel", "apple", "gpu", "generation")
"""Words that drivers and people put beside any name, and that tell no two of these machines apart."""

_ALSO = {
    "H100": ("sxm5?", "hbm3"),
    "H100 PCIe": ("hbm2e",),
    "H100 NVL": ("hbm3",),
    "A100 80GB": ("sxm4?", "hbm2e"),
    "A100 80GB PCIe": ("hbm2e",),
    "A100 40GB": ("sxm4?", "pcie", "hbm2"),
}
"""What else is said of a machine, as patterns."""

_LONGEST_NAME = 100


def machine_of(name: str) -> Machine:
    """The machine of this name, as its maker, its driver or people write it: capitals, blanks and dashes make
    no difference, and what stands before the number may be left out. What is said of it besides must be so:
    a 4090 Laptop, a 3090 Ti and a slice of an H100 are other machines, and unknown.

    EngineError(invalid_request) names those that may be meant, or all.
    """
    wanted = _plain(name)[:_LONGEST_NAME]
    spelled = {each: words for each in MACHINES if (words := _spelled(each, wanted))}
    for each, words in spelled.items():
        if words.issuperset(_telling(each)):
            return each
    like = [each for each in MACHINES if wanted and wanted in _plain(each.name)]
    like += [each for each in MACHINES if each not in like and max(_telling(each), key=len) in wanted]
    names = ", ".join(each.name for each in spelled or like or MACHINES)
    verb = "may be" if spelled else "is not known; like it are" if like else "is not known; known are"
    raise EngineError("invalid_request", f"the machine {name[:40]!r} {verb} {names}")


def _words(machine: Machine) -> list[str]:
    return [_plain(word).removesuffix("gb") for word in re.split(r"[ -]", machine.name)]


def _telling(machine: Machine) -> list[str]:
    """The words of its name that tell it from others: its number, which is the longest one with a digit, and
    what comes behind.
    """
    words = _words(machine)
    return words[words.index(max((word for word in words if not word.isalpha()), key=len)) :]


def _spelled(machine: Machine, wanted: str) -> set[str]:
    """The words that a name is made of, if all of them are true of a machine; none otherwise."""
    own = (f"{word}(?:gb)?" for word in (*_words(machine), str(machine.memory // GB)))
    pattern = "|".join([*own, *_MAKERS, *_ALSO.get(machine.name, ())])
    if re.fullmatch(f"(?:{pattern})+", wanted) is None:
        return set()
    return {word.removesuffix("gb") for word in re.findall(pattern, wanted)}


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())

"""The peak bandwidth of the memory: measured, told by whoever kept it, and never below what was achieved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from kernels.machine import others_run, processor, total_memory


def place_of(device: str, nbytes: int) -> str:
    """What a peak depends on. Weights of about the same size, which is what caches look at, share one."""
    size = nbytes.bit_length()
    return f"{processor()}, {total_memory() >> 30} GiB; {device}; weights below 2^{size} bytes"


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes a second. quiet: measured at least once while other programs left the machine alone."""

    rate: float
    quiet: bool

    @property
    def gbs(self) -> float:
        """In GB/s."""
        return self.rate / 1e9

    def joined(self, other: Peak | None) -> Peak:
        """The better of two: other programs make a measurement worse, never better."""
        if other is None:
            return self
        return Peak(max(self.rate, other.rate), self.quiet or other.quiet)


class Measurable(Protocol):
    """The part of a runner that reads."""

    def read_bandwidth(self) -> float | None:
        """Bytes a second; None where there is nothing to measure."""


class PeakBandwidth:
    """What is known of a model's peak. `best` is replaced by reference, so any thread may read it."""

    def __init__(self) -> None:
        self.best: Peak | None = None

    def tell(self, peak: Peak) -> None:
        """Somebody knows one of this model on this machine."""
        self.best = peak.joined(self.best)

    def measure(self, runner: Measurable) -> None:
        """Read the weights a few times; takes up to some tenths of a second."""
        quiet = not others_run()
        rate = runner.read_bandwidth()
        if rate:
            self.tell(Peak(rate, quiet and not others_run()))

    def achieved(self, rate: float) -> None:
        """A conversation alone has moved so many bytes a second: the peak can't be lower."""
        if self.best is not None and rate > self.best.rate:
            self.best = replace(self.best, rate=rate)

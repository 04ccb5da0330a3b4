"""Who computes uses a processor: what counts as hanging, by a clock and processes of the test's own."""

from __future__ import annotations

import os

import pytest

from engine.parallel import stall
from engine.parallel.stall import Stall, Used, used


class Machine:
    """Two processes, and time that passes a second at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.processes = {1: Used("S", 0), 2: Used("S", 0)}
        monkeypatch.setattr(stall.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(stall, "used", self.processes.get)
        self.stall = Stall()
        self.stall.look([1, 2])
        self.stall.begin()

    def seconds(self, count: int, *processes: tuple[str, int], each: float = 1.0) -> int | None:
        """Let time pass; each process is in a state and uses so many ticks a second."""
        for _ in range(count):
            self.now += each
            for pid, (state, ticks) in enumerate(processes, 1):
                self.processes[pid] = Used(state, self.processes[pid].ticks + ticks)
            if (found := self.stall.look([1, 2])) is not None:
                return found
        return None


def test_ranks_that_all_wait_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.seconds(5, ("S", 0), ("S", 1)) is None
    assert machine.seconds(4, ("S", 0), ("S", 0)) is not None


@pytest.mark.parametrize("busy", [("R", 0), ("D", 0), ("S", 9)])
def test_a_step_may_take_as_long_as_somebody_computes_or_reads(
    monkeypatch: pytest.MonkeyPatch, busy: tuple[str, int]
) -> None:
    machine = Machine(monkeypatch)
    for _ in range(20):
        assert machine.seconds(5, ("S", 0), ("S", 0)) is None
        assert machine.seconds(1, ("S", 0), busy) is None


def test_a_stopped_rank_hangs_while_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.seconds(5, ("R", 100), ("T", 0)) is None
    assert machine.seconds(1, ("R", 100), ("S", 3)) is None
    assert machine.seconds(8, ("R", 100), ("T", 0)) == 1


def test_time_in_which_everything_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.seconds(1, ("S", 0), ("T", 0), each=3600.0) is None
    assert machine.seconds(2, ("S", 0), ("S", 0)) is None


def test_the_system_tells_of_this_process() -> None:
    found = used(os.getpid())
    assert found is not None
    assert found.state == "R"
    assert found.ticks > 0
    assert used(2**22 + 1) is None

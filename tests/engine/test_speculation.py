"""How many drafts are computed: as many as pay, by simulated clocks."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest

from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.speculative.acceptance import accept
from engine.speculative.chances import EXPECTED, Chances
from engine.speculative.costs import STALE, StepCosts
from engine.speculative.drafter import Pass, Proposal
from engine.speculative.speculation import (
    LONGEST_PATIENCE,
    MOST_DRAFTS,
    REST,
    WIDEST,
    Speculation,
    most_drafts,
)
from engine.step_plan import StepPlan

RIGHT, WRONG = 5, 6


class Guesser:
    """Guesses that are right with a set chance: every row samples RIGHT."""

    name = "guesser"

    def __init__(self, right: Callable[[Sequence], float], seed: int = 1) -> None:
        self.right = right
        self._rng = random.Random(seed)

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        return [
            Proposal([RIGHT if self._rng.random() < self.right(each) else WRONG for _ in range(most)], 1)
            for each in sequences
        ]


class Computer:
    """The same guesses, each of which takes a pass of its own. cost: seconds of a pass by its rows."""

    name = "computer"
    memory_bytes = bytes_per_token = 0

    def __init__(self, right: Callable[[Sequence], float], cost: Callable[[int], float]) -> None:
        self.right, self.cost = right, cost
        self._rng = random.Random(1)

    def limit(self, sequence: Sequence) -> int:
        return 10**6

    def guess(self, plan: StepPlan) -> list[Pass]:
        runs = [run for run in plan.runs if run.decoding and run.count > 1]
        for run in runs:
            for place in range(len(run.sequence.drafts)):
                chance = self.right(run.sequence)
                run.sequence.drafts[place] = RIGHT if self._rng.random() < chance else WRONG
        passes = []
        for place in range(1, max((run.count for run in runs), default=0)):
            rows = sum(run.count > place for run in runs)
            passes.append(Pass(rows, self.cost(rows)))
        return passes

    def close(self) -> None: ...


class Simulation:
    """Sequences in decode, steps of which take the time that a function of their rows says."""

    def __init__(
        self,
        guesser: Guesser | Computer,
        count: int,
        cost: Callable[[int], float],
        *,
        window: int | None = None,
    ) -> None:
        pool = BlockPool(20_000, 16)
        self.cost = cost
        self.scheduler = Scheduler(pool, ChunkBudget(64, 512), max_batch_tokens=512, max_sequences=64)
        self.speculation = Speculation(guesser, window, 64)
        self.sequences = [
            Sequence(number, [number] * 3, SamplerState(SamplingParams(), number))
            for number in range(1, count + 1)
        ]
        for sequence in self.sequences:
            self.scheduler.add(sequence)
        self.rng = random.Random(3)
        self.tokens, self.seconds, self.rows = 0, 0.0, 0
        self.run(3)

    def run(self, steps: int) -> float:
        """Tokens a second of these steps, as a multiple of what they would be without drafts."""
        tokens, seconds = 0, 0.0
        for _ in range(steps):
            decoding = [each for each in self.scheduler.running if each.decoding]
            self.speculation.draft(decoding, lambda sequence: 10**6)
            plan = self.scheduler.plan()
            self.speculation.guess(plan)
            accepted = accept(plan, [RIGHT] * len(plan.samples()))
            self.scheduler.commit(plan, accepted)
            guessing = sum(each.seconds for each in self.speculation.passes)
            took = self.cost(plan.tokens) * self.rng.choice([1.0, 1.0, 0.97, 1.03, 1.2])
            self.speculation.observe(plan, accepted, took + guessing)
            took = self.cost(plan.tokens) + guessing
            tokens, seconds, self.rows = tokens + sum(map(len, accepted)), seconds + took, plan.tokens
        count = len(self.sequences)
        return tokens / seconds * self.cost(count) / count


def cheap(rows: int) -> float:
    """Rows of a step that reads the weights for the most part."""
    return 0.003 * (1 + 0.2 * (rows - 1))


def dear(rows: int) -> float:
    """A step that computes for the most part."""
    return 0.001 * rows


def test_the_window_opens_where_guesses_are_right_and_rows_are_cheap() -> None:
    simulation = Simulation(Guesser(lambda sequence: 1.0), 1, cheap)
    assert simulation.run(300) > 3
    assert simulation.rows == 1 + WIDEST
    assert simulation.speculation.figures.off == ""


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("right", [0.0, 0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("cost", [cheap, dear])
def test_N042_drafts_never_make_it_slower(count: int, right: float, cost: Callable[[int], float]) -> None:
    simulation = Simulation(Guesser(lambda sequence: right), count, cost)
    assert simulation.run(1000) > 0.98


@pytest.mark.parametrize(("right", "cost", "why"), [(0.0, cheap, "right"), (0.95, dear, "cost")])
def test_N042_drafts_that_do_not_pay_are_off_and_it_is_said_why(
    right: float, cost: Callable[[int], float], why: str
) -> None:
    simulation = Simulation(Guesser(lambda sequence: right), 8, cost)
    simulation.run(200)
    assert simulation.rows == 8
    assert why in simulation.speculation.figures.off


def test_before_the_first_step_is_measured_that_is_why_there_are_none() -> None:
    for drafter in (Guesser(lambda sequence: 0.9), Computer(lambda sequence: 0.9, cheap)):
        simulation = Simulation(drafter, 1, cheap)
        simulation.speculation = Speculation(drafter, None, 64)
        simulation.run(1)
        assert simulation.speculation.figures.off == "no step has been measured"


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("right", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("cost", [cheap, dear])
def test_N042_guesses_that_take_time_never_make_it_slower(
    count: int, right: float, share: float, cost: Callable[[int], float]
) -> None:
    computer = Computer(lambda sequence: right, lambda rows: share * cost(rows))
    simulation = Simulation(computer, count, cost)
    gain = simulation.run(1000)
    assert gain > 0.98
    if (right, share, cost) == (0.9, 0.1, cheap):  # 1.87 and 1.23 is all there is to gain
        assert gain > {1: 1.7, 4: 1.06, 16: 0.98}[count]


def test_guesses_that_take_time_are_tried_again_when_they_may_have_become_better() -> None:
    computer = Computer(lambda sequence: 0.0, lambda rows: 0.0003)
    simulation = Simulation(computer, 1, cheap)
    simulation.run(300)
    assert simulation.speculation.figures.off
    computer.right = lambda sequence: 1.0
    simulation.run(2 * LONGEST_PATIENCE)
    assert simulation.run(300) > 2.5
    assert simulation.rows == 1 + WIDEST


def test_what_did_not_pay_is_tried_again() -> None:
    guesser = Guesser(lambda sequence: 0.0)
    simulation = Simulation(guesser, 1, cheap)
    simulation.run(300)
    assert simulation.rows == 1
    guesser.right = lambda sequence: 1.0  # seen soon: guesses are compared though they are not computed
    simulation.run(30 * REST)
    assert simulation.rows >= WIDEST
    simulation.cost = lambda rows: 0.003 * rows * rows
    simulation.run(300)
    assert simulation.rows == 1
    simulation.cost = cheap
    simulation.run(REST * STALE + 300)
    assert simulation.rows > 4


def test_drafts_go_to_those_whose_guesses_are_right() -> None:
    simulation = Simulation(Guesser(lambda sequence: float(sequence.id <= 2)), 4, cheap)
    simulation.run(200)
    drafted = [sequence.drafted for sequence in simulation.sequences]
    assert min(drafted[:2]) > 20 * max(drafted[2:])


def test_N042_as_a_batch_fills_up_drafts_are_switched_off() -> None:
    def like_a_cpu(rows: int) -> float:  # reads the weights for as long as it computes eight rows
        return 0.001 * max(8, rows) + 0.0001 * rows

    rows = {}
    for count in (1, 4, 16):
        simulation = Simulation(Guesser(lambda sequence: 0.8), count, like_a_cpu)
        simulation.run(400)
        rows[count] = simulation.rows / count
    assert rows[1] >= 5
    assert rows[16] == 1


@pytest.mark.parametrize("window", [1, 5, 8])
def test_a_fixed_window_depends_on_nothing_but_the_guesses(window: int) -> None:
    simulation = Simulation(Guesser(lambda sequence: 0.0), 3, dear, window=window)
    simulation.run(40)
    assert simulation.rows == 3 * (1 + window)
    figures = simulation.speculation.figures
    assert len(figures.tried) == window
    assert sum(figures.tried) == sum(sequence.drafted for sequence in simulation.sequences) > 0
    assert sum(figures.kept) == 0


def test_kept_drafts_are_counted_by_their_place() -> None:
    simulation = Simulation(Guesser(lambda sequence: 0.7), 3, cheap, window=4)
    simulation.run(100)
    figures = simulation.speculation.figures
    assert sum(figures.kept) == sum(sequence.accepted for sequence in simulation.sequences)
    assert list(figures.kept) == sorted(figures.kept, reverse=True)
    assert len(set(figures.tried)) == 1


def test_there_are_never_more_drafts_than_the_program_has_rows_for() -> None:
    simulation = Simulation(Guesser(lambda sequence: 1.0), 40, lambda rows: 0.001)
    simulation.run(30)
    assert simulation.rows == 40 + MOST_DRAFTS == 40 + most_drafts(None, 64)
    assert most_drafts(3, 64) == 192


def test_a_reply_gets_no_drafts_that_it_has_no_room_for() -> None:
    speculation = Speculation(Guesser(lambda sequence: 1.0), 8, 4)
    sequences = [Sequence(number, [1, 2], SamplerState(SamplingParams(), 1)) for number in range(4)]
    speculation.draft(sequences, lambda sequence: sequence.id)
    assert [len(sequence.drafts) for sequence in sequences] == [0, 0, 1, 2]
    assert all(isinstance(sequence.drafts, array) for sequence in sequences)


def test_chances_follow_what_came_and_learn_nothing_behind_a_wrong_guess() -> None:
    chances = Chances()
    assert [chances.of(grade) for grade in range(4)] == pytest.approx(EXPECTED)
    chances.compare(Proposal([1, 2, 3], 2), [1])  # a step without drafts tells of the first guess
    after_right = chances.of(2)
    assert after_right > EXPECTED[2]
    other = Chances()
    other.compare(Proposal([1], 2), [1])
    assert other.of(2) == after_right
    chances.compare(Proposal([1, 9, 9], 2), [1, 2])
    other.compare(Proposal([1, 9], 2), [1, 2])
    assert chances.of(2) == other.of(2)
    assert chances.of(1) == pytest.approx(EXPECTED[1])


def test_costs_follow_the_machine_and_keep_their_shape() -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    costs = StepCosts(40)
    for pace in (1.0, 8.0, 0.5):  # another program takes the machine, and leaves
        for _ in range(200):
            rows = rng.choice([1, 3, 9])
            costs.observe(rows, pace * cheap(rows) * rng.choice([1.0, 0.98, 1.05]))
        for rows in (2, 3, 5, 9):
            assert costs.of(rows) / costs.of(1) == pytest.approx(cheap(rows) / cheap(1), rel=0.2)
    assert costs.of(20) > costs.of(9)
    before = costs.of(9) / costs.of(1)
    for odd in (0.0, -1.0, float("inf"), float("nan")):
        costs.observe(1, odd)
    costs.observe(41, 1.0)
    costs.observe(9, 1e9)
    assert costs.of(9) / costs.of(1) < 1.5 * before

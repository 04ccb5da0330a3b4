"""The arrays of a step, against the plan they are made from."""

import random

import numpy as np
import pytest

from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from engine.step_plan import Run, StepPlan
from kernels.program import StepOutput

BLOCK = 16


class Recorder:
    """A backend and a program in one that keep the steps they are given."""

    name, device, exact, weight_bytes = "recorder", "cpu", True, 0

    def __init__(self):
        self.steps = []

    def launch(self, step, *, logits, write_mask=None):
        assert write_mask is None, "nothing keeps to a grammar"
        self.steps.append(step)
        return StepOutput(np.zeros(step.counts.samples, np.int32), None)


def random_plan(rng):
    """Sequences in decode, in prefill and scored, of any length, each with blocks of its own."""
    free = rng.sample(range(1000), 1000)
    runs = []
    for number in range(rng.randint(1, 20)):
        prompt = [rng.randrange(40000) for _ in range(rng.randint(1, 90))]
        score = rng.random() < 0.2
        sequence = Sequence(number, prompt, SamplerState(SamplingParams(), number), score=score)
        sequence.computed = rng.randrange(len(prompt))
        count = rng.choice([1, sequence.remaining, rng.randint(1, sequence.remaining)])
        for _ in range(-(-(sequence.computed + count) // BLOCK) + rng.randint(0, 2)):
            sequence.table.blocks.append(free.pop())
        samples = count if score else int(count == sequence.remaining)
        runs.append(Run(sequence, sequence.computed, count, samples))
    return StepPlan(runs=runs)


@pytest.mark.parametrize("seed", range(20))
def test_the_arrays_of_a_step_say_what_the_plan_says(seed):
    recorder = Recorder()
    plan = random_plan(random.Random(seed))
    ModelRunner(recorder, recorder, Traffic(0, 0), BLOCK).launch(plan, logits=False)
    (step,) = recorder.steps
    at = 0
    for line, run in enumerate(plan.runs):
        sequence, blocks = run.sequence, run.sequence.table.blocks
        table = step.block_tables[line].tolist()
        assert table == [*blocks, *[0] * (len(table) - len(blocks))]
        for position in range(run.start, run.start + run.count):
            assert step.positions[at] == position
            assert step.tokens[at] == sequence.tokens[position]
            assert step.sequences[at] == line
            assert divmod(step.slots[at], BLOCK) == (blocks[position // BLOCK], position % BLOCK)
            at += 1
    assert at == len(step.tokens) == len(step.positions) == len(step.slots) == len(step.sequences)
    assert step.sample_rows.tolist() == [row for row, _, _ in plan.samples()]
    assert step.draw_positions.tolist() == [position for _, _, position in plan.samples()]
    fields = (step.tokens, step.positions, step.slots, step.sequences, step.block_tables)
    assert {field.dtype for field in fields} == {np.dtype(np.int32)}

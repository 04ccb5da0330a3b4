"""The one buffer of a step, and what programs promise about it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from kernels.interface import Backend, BackendSettings
from kernels.program import Limits
from kernels.reference.backend import ReferenceBackend
from kernels.reference.operations import ReferenceOperations
from kernels.reference.quantized_backend import QuantizedBackend
from kernels.step import ALIGNMENT, ARRAYS, Counts, Step, layout, size_of
from kernels.weights import Plain
from steps import arrays_of, changed, packed_mask


def random_step(rng: np.random.Generator) -> Step:
    """A step of any size, every byte of its arrays random."""
    counts = Counts(*rng.integers(0, 9, len(Counts._fields)).tolist())
    step = Step.within(rng.integers(0, 256, size_of(counts) + 7, np.uint8), counts)
    assert step.counts == counts
    return step


@pytest.mark.parametrize("seed", range(20))
def test_whoever_has_the_buffer_has_the_step(seed: int):
    step = random_step(np.random.default_rng(seed))
    assert step.memory.nbytes == size_of(step.counts)
    sent = np.frombuffer(bytearray(step.memory.tobytes()), np.uint8)
    received = Step.read(sent)
    assert received.counts == step.counts
    for name, values in arrays_of(step).items():
        other = getattr(received, name)
        assert (other.dtype, other.shape, other.tobytes()) == (values.dtype, values.shape, values.tobytes())
        assert np.shares_memory(other, sent) or not other.size


@pytest.mark.parametrize("seed", range(20))
def test_arrays_lie_in_order_each_at_a_multiple_of_the_alignment(seed: int):
    rng = random.Random(seed)
    places = layout(Counts(*(rng.randrange(9) for _ in Counts._fields)))
    assert [place.name for place in places] == [array.name for array in ARRAYS]
    end = 4 * len(Counts._fields)
    for place in places:
        assert place.begin % ALIGNMENT == 0
        assert end <= place.begin < end + ALIGNMENT
        end = place.end
        assert place.end - place.begin == np.prod(place.shape, dtype=int) * place.dtype.itemsize


def test_memory_too_short_for_its_counts_is_no_step():
    counts = Counts(*range(2, 9))
    step = Step.within(np.zeros(size_of(counts), np.uint8), counts)
    with pytest.raises(ValueError, match="are no step of"):
        Step.read(step.memory[:-1])
    for count in range(len(step.counts)):
        for value in (-1, 1 << 20):
            memory = step.memory.copy()
            memory[4 * count : 4 * count + 4].view(np.int32)[0] = value
            with pytest.raises(ValueError, match="are no step of"):
                Step.read(memory)


def test_arrays_of_lengths_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ValueError, match="slots has 2 values where 3 were expected"):
        Step.of(tokens=[1, 2, 3], slots=[1, 2])
    with pytest.raises(ValueError, match="seen_counts has 1 values where 2 were expected"):
        Step.of(temperature=[1], seen_ids=[1, 2], seen_counts=[1])


def test_on_a_device_the_arrays_are_views_of_one_tensor():
    step = Step.of(tokens=[4, 5], positions=[0, 1], slots=[2, 3], block_tables=[[7, 8, 9]], sample_rows=[1])
    inputs = ReferenceOperations(step, None, torch.device("cpu")).inputs()
    for name in ("tokens", "positions", "slots", "sequences", "block_tables", "sample_rows"):
        tensor, values = getattr(inputs, name), getattr(step, name)
        assert tensor.dtype == torch.int32
        assert tensor.tolist() == values.tolist()
        assert tensor.untyped_storage().data_ptr() == step.memory.ctypes.data, "of the whole step"
    assert inputs.sampling is step


def native() -> Backend:
    """Fails where the library is missing; without a compiler there is none."""
    from kernels.native import available, unavailable_reason
    from kernels.native.backend import NativeBackend

    if not available():
        pytest.skip(unavailable_reason())
    return NativeBackend(BackendSettings(threads=2))


@pytest.mark.parametrize("make", [lambda: ReferenceBackend(BackendSettings("cpu")), QuantizedBackend, native])
def test_while_a_step_is_under_way_the_next_one_is_written(make):
    """Outputs are those of the step that was launched; tokens are the caller's, logits hold till a launch."""
    backend = make()
    table = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    placed = backend.place_matrix(Plain(table, "f32"))

    def forward(ops, inputs):
        return ops.sample(
            ops.gather(ops.embedding(placed, inputs.tokens), inputs.sample_rows), inputs.sampling
        )

    program = backend.capture(forward, Limits(8, 8, 1, 1))
    steps = [
        Step.of(tokens=[3, 4], block_tables=[[0]], sample_rows=[0, 1]),
        Step.of(tokens=[5, 6, 7], block_tables=[[0]], sample_rows=[2, 0], temperature=[1, 1], seeds=[8, 9]),
    ]
    alone = [program.launch(step).result().tokens.tolist() for step in steps]
    first = program.launch(steps[0], logits=True)
    later = changed(steps[1])  # written before the first is done
    done = first.result()
    assert done.tokens.tolist() == alone[0]
    assert done.logits.tobytes() == table[[3, 4]].tobytes()
    assert program.launch(later).result().tokens.tolist() == alone[1]
    assert done.tokens.tolist() == alone[0], "the caller's own"
    backend.close()


@pytest.mark.parametrize("make", [lambda: ReferenceBackend(BackendSettings("cpu")), QuantizedBackend, native])
def test_a_mask_is_written_once_and_holds_whatever_was_there_before(make):
    backend = make()
    table = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    placed = backend.place_matrix(Plain(table, "f32"))
    events: list[str] = []

    def forward(ops, inputs):
        events.append("forward")
        rows = ops.gather(ops.embedding(placed, inputs.tokens), inputs.sample_rows)
        return ops.sample(rows, inputs.sampling)

    program = backend.capture(forward, Limits(8, 8, 1, 1))
    allowed = np.zeros((2, 50), bool)
    allowed[0, [3, 41]] = allowed[1, 7] = True
    whole = Step.of(tokens=[3, 4], block_tables=[[0]], sample_rows=[0, 1], mask=packed_mask(allowed))
    wanted = program.launch(whole).result().tokens.tolist()
    assert wanted == [max((3, 41), key=lambda token: table[3, token]), 7]
    for before in (0, 0xFFFFFFFF):
        step = changed(whole)
        step.mask[:] = before
        del events[:]

        def write(step: Step = step) -> None:
            events.append("mask")
            step.mask[:] = whole.mask

        assert program.launch(step, write_mask=write).result().tokens.tolist() == wanted
        assert events.count("mask") == 1
        if make not in (native, QuantizedBackend):
            assert events == ["forward", "mask"], "a GPU is at the logits by then"

    def fails() -> None:
        raise MemoryError("no room for a mask")

    with pytest.raises(MemoryError, match="no room for a mask"):
        program.launch(changed(whole), write_mask=fails)
    assert program.launch(whole).result().tokens.tolist() == wanted
    backend.close()

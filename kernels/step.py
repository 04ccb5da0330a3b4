"""The arrays of one step in one buffer, so that one copy takes them to a device or to another process.

The buffer begins with the counts, int32 each, in the order of `Counts`. The arrays follow in the order in
which `Step` declares them, each at the next multiple of ALIGNMENT bytes. So whoever has the buffer has the
step; C++, too: step.hpp has the same list, and names, types and shapes are compared when the library is
loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Bytes, Float32, Int32, Int64, UInt32, UInt64

ALIGNMENT = 16


class Counts(NamedTuple):
    """What the shapes of a step's arrays are made of.

    rows: tokens. samples: rows whose next token is wanted. tables: sequences; table_width: most blocks of
    one. seen, biased: tokens with a penalty or a bias, of all samples together. mask_words: ceil(vocabulary /
    32), 0 where no sample has a mask.
    """

    rows: int = 0
    samples: int = 0
    tables: int = 0
    table_width: int = 0
    seen: int = 0
    biased: int = 0
    mask_words: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """`rows` tokens of some sequences, the rows of a sequence side by side in order, and how to sample.

    tokens, positions, slots: position counts from 0 in the sequence; slot = block * block_size + offset is
    where the row's keys and values go. sequences: the row's line in block_tables, which hold the physical
    block of each block_size positions; entries past a sequence's end are 0. sample_rows: the rows whose next
    token is wanted. Each array's shape stands beside its type, in names of counts.

    What the rules of sampling mean is defined in kernels/sampling.py. top_k 0 is off. draw_positions: index
    in its sequence of the token to be drawn. Sample i has seen the tokens seen_ids[seen_offsets[i] :
    seen_offsets[i + 1]] (each id once); seen_counts holds how often each stands in the reply, 0 for a token
    of the prompt alone. Only samples with a penalty list any. Sample i adds bias_values[...] (-inf forbids)
    to bias_ids[bias_offsets[i] : bias_offsets[i + 1]] (each id once). mask: bit t % 32 of word t // 32 is 1
    if token t is allowed; a sample without a mask beside others with one allows all.
    """

    memory: Bytes
    counts: Counts
    temperature: Annotated[Float32, "samples"]
    top_k: Annotated[Int32, "samples"]
    top_p: Annotated[Float32, "samples"]
    min_p: Annotated[Float32, "samples"]
    repetition: Annotated[Float32, "samples"]
    presence: Annotated[Float32, "samples"]
    frequency: Annotated[Float32, "samples"]
    seeds: Annotated[UInt64, "samples"]
    draw_positions: Annotated[Int64, "samples"]
    sample_rows: Annotated[Int32, "samples"]
    tokens: Annotated[Int32, "rows"]
    positions: Annotated[Int32, "rows"]
    slots: Annotated[Int32, "rows"]
    sequences: Annotated[Int32, "rows"]
    block_tables: Annotated[Int32, "tables", "table_width"]
    seen_offsets: Annotated[Int32, "samples + 1"]
    seen_ids: Annotated[Int32, "seen"]
    seen_counts: Annotated[Int32, "seen"]
    bias_offsets: Annotated[Int32, "samples + 1"]
    bias_ids: Annotated[Int32, "biased"]
    bias_values: Annotated[Float32, "biased"]
    mask: Annotated[UInt32, "samples", "mask_words"]

    @classmethod
    def within(cls, memory: Bytes, counts: Counts) -> Step:
        """A step of this size at the beginning of the memory; its arrays hold whatever that held."""
        memory[: 4 * len(counts)].view(np.int32)[:] = counts
        return cls.read(memory)

    @classmethod
    def read(cls, memory: Bytes) -> Step:
        """The step that is in the memory. ValueError: that is too short for it."""
        counts = Counts(*memory[: 4 * len(Counts._fields)].view(np.int32).tolist())
        places = layout(counts)
        size = places[-1].end
        if min(counts) < 0 or memory.nbytes < size:
            raise ValueError(f"{memory.nbytes} bytes are no step of {counts}")
        arrays = (memory[begin:end].view(dtype).reshape(shape) for _, dtype, shape, begin, end in places)
        return cls(memory[:size], counts, *arrays)

    @classmethod
    def of(cls, **arrays: ArrayLike) -> Step:
        """A step with a buffer of its own that holds copies of these arrays.

        Where one is not named its rule is off, and temperature 0. ValueError: lengths that do not fit.
        """
        given = {name: np.asarray(values) for name, values in arrays.items()}
        sizes: dict[str, int] = {}
        for array in ARRAYS:
            if array.name in given:
                sizes = dict(zip(array.shape, given[array.name].shape, strict=True)) | sizes
        sizes.pop("samples + 1", None)
        counts = Counts(**sizes)
        step = cls.within(np.zeros(size_of(counts), np.uint8), counts)
        step.top_p[:], step.repetition[:] = 1, 1
        for name, values in given.items():
            into = getattr(step, name)
            if into.shape != values.shape:
                raise ValueError(f"{name} has {values.size} values where {into.size} were expected")
            into[...] = values
        return step


class ArrayOfStep(NamedTuple):
    """Name, type and shape of an array of a step; its dimensions are counts, or "samples + 1"."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[str, ...]


def _arrays() -> tuple[ArrayOfStep, ...]:
    arrays = []
    for name, hint in get_type_hints(Step, include_extras=True).items():
        if get_origin(hint) is Annotated:
            _, dtype = get_args(hint.__origin__)
            arrays.append(ArrayOfStep(name, np.dtype(*get_args(dtype)), hint.__metadata__))
    return tuple(arrays)


ARRAYS = _arrays()
"""Those that `Step` declares, in their order."""


class Place(NamedTuple):
    """Where an array lies in the buffer of a step: bytes `begin` to `end`."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def layout(counts: Counts) -> list[Place]:
    """The places of the arrays of such a step, in order."""
    sizes = counts._asdict()
    sizes["samples + 1"] = counts.samples + 1
    places: list[Place] = []
    end = 4 * len(counts)
    for name, dtype, shape in ARRAYS:
        sized = tuple([sizes[count] for count in shape])
        begin = end + -end % ALIGNMENT
        end = begin + math.prod(sized) * dtype.itemsize
        places.append(Place(name, dtype, sized, begin, end))
    return places


def size_of(counts: Counts) -> int:
    """Bytes of such a step."""
    return layout(counts)[-1].end

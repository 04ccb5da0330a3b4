"""Random replies that keep to a grammar, without a model."""

from __future__ import annotations

import random

import numpy as np

from engine import sequence
from engine.grammar.constraint import Constraint
from engine.grammar.grammars import Grammars
from engine.grammar.masks import mask_words, write_masks
from engine.prompt import source_of
from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.step_plan import Run


def constraint_of(
    grammars: Grammars, prompt: object = (), *, continue_final: bool = False, **what: object
) -> Constraint:
    """What a reply keeps to. EngineError."""
    found = grammars.constraint(SamplingParams(**what), source_of(prompt, continue_final), [])  # type: ignore[arg-type]
    assert found is not None
    return found


def run_of(constraint: Constraint | None, drafts: list[int] | None = None) -> Run:
    """A run that draws the next token of a reply, and those behind drafts."""
    of = sequence.Sequence(1, [1], SamplerState(SamplingParams(), 1), constraint=constraint)
    of.drafts.extend(drafts or [])
    return Run(of, 0, 1 + len(of.drafts), 1 + len(of.drafts))


def allowed(constraint: Constraint, drafts: list[int] | None = None) -> list[list[int]]:
    """The tokens that may come next, and behind each of the drafts."""
    run = run_of(constraint, drafts)
    mask = np.full((run.samples, mask_words([run])), 0xAAAAAAAA, np.uint32)
    write_masks(mask, [run])
    bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little")
    return [np.flatnonzero(row).tolist() for row in bits]


def walk(
    constraint: Constraint,
    seed: object,
    *,
    ends: set[int],
    closers: set[int],
    most: int = 400,
    forced: bool = False,
) -> tuple[list[int], bool]:
    """A random reply, and whether it came to its end. Each token is drawn by the seed and its place alone.

    closers: tokens that are taken more often than others. forced: tokens without a choice are taken without
    looking at what is allowed.
    """
    tokens: list[int] = []
    while len(tokens) < most:
        (options,) = allowed(constraint)
        assert options, (constraint.failure, tokens)
        draw = random.Random(f"{seed} {len(tokens)}")
        preferred = [token for token in options if token in closers or token in ends]
        token = draw.choice(preferred if preferred and draw.random() < 0.4 else options)
        if token in ends:
            return tokens, True
        tokens.append(token)
        constraint.advance([token])
        if forced:
            tokens += constraint.forced(most - len(tokens))
        if constraint.complete:
            return tokens, True
    return tokens, False

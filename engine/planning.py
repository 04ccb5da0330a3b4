"""How a model would run on a machine: what fits, and at most how fast. Pure arithmetic on data sheets.

A step takes as long as its bytes need at the machine's bandwidth or its operations at its rate, whichever is
longer: a bound that kernels come near to, not a promise. Several cards share a model without loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from .data_sheets import Machine
from .workload import Step, Workload

USABLE = {"gpu": 0.9, "unified": 0.75, "cpu": 1.0, "here": 1.0}
"""Part of the memory that weights, keys and values can have, by the kind of machine: on a card programs,
graphs and buffers take some; where it is the system's, too, that leaves a GPU three quarters by itself
(macOS). Of this machine it is known what is free.
"""

CARDS = {"gpu": (1, 2, 4, 8)}
PROMPT = 2048
"""Tokens of the prompt that stands for prefill."""

ACCEPTANCE, DRAFT_COST = 0.8, 0.1
"""Of the draft model that stands for drafts: the share of its guesses that is right, and what one costs, as a
share of a step of the model."""

MOST_DRAFTS = 8


class Point(NamedTuple):
    """A place on the roofline: what it is, operations a byte, and operations a second at most."""

    what: str
    intensity: float
    rate: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A workload on a machine. cards: so many are needed, None if eight are not enough; the other figures are
    of as many (of eight). conversations: of the asked length that fit. single, batch: tokens a second of one
    conversation, and of all that were asked for together. prefill: tokens a second of a prompt. limit: what
    the batch waits for, memory or arithmetic. These are None where the machine's bandwidth is not known.
    """

    machine: Machine
    cards: int | None
    conversations: int
    single: float | None
    batch: float | None
    prefill: float | None
    limit: str | None
    points: tuple[Point, ...] = ()


def rate_of(machine: Machine, workload: Workload) -> float | None:
    """Operations a second: a CPU computes packed weights in integers, a GPU turns them into bf16."""
    return machine.int8 if machine.kind in ("cpu", "here") and workload.packed else machine.bf16


def seconds(step: Step, machine: Machine, rate: float | None, cards: int = 1) -> float | None:
    """The least time of a step; None where the bandwidth is not known."""
    if not machine.bandwidth:
        return None
    moving = step.nbytes / machine.bandwidth
    return max(moving, step.operations / rate if rate else 0.0) / cards


def estimate(workload: Workload, machine: Machine, conversations: int, tokens: int) -> Estimate:
    """The workload with so many conversations of so many tokens each."""
    usable = machine.memory * USABLE[machine.kind]
    needed = workload.memory(conversations, tokens)
    counts = CARDS.get(machine.kind, (1,))
    cards = next((count for count in counts if needed <= count * usable), None)
    count, rate = cards or counts[-1], rate_of(machine, workload)
    room = max(0, int(count * usable) - workload.weight_bytes)

    def speed(step: Step, tokens: int) -> float | None:
        took = seconds(step, machine, rate, count)
        return tokens / took if took else None

    one, all_ = workload.decode(1, tokens - 1), workload.decode(conversations, tokens - 1)
    prompt = workload.prefill(PROMPT)
    limit: str | None = None
    points: tuple[Point, ...] = ()
    if machine.bandwidth:
        computing = rate is not None and all_.operations / rate > all_.nbytes / machine.bandwidth
        limit = "arithmetic" if computing else "memory"
        steps = {"decode, 1 conversation": one, f"decode, {conversations} conversations": all_}
        if conversations == 1:
            steps.popitem()
        steps[f"prefill of {PROMPT} tokens"] = prompt
        points = tuple(
            Point(what, step.intensity, min(step.intensity * machine.bandwidth, rate or float("inf")))
            for what, step in steps.items()
        )
    return Estimate(
        machine,
        cards,
        room // workload.conversation_bytes(tokens) if workload.conversation_bytes(tokens) else 0,
        speed(one, 1),
        speed(all_, conversations),
        speed(prompt, PROMPT),
        limit,
        points,
    )


def with_draft(workload: Workload, draft: Workload | None) -> Workload:
    """The model with the memory of its draft model, which has its keys in as many blocks."""
    if draft is None:
        return workload
    both = workload.weight_bytes + draft.weight_bytes, workload.kv_bytes + draft.kv_bytes
    return replace(workload, weight_bytes=both[0], kv_bytes=both[1])


def faster(
    workload: Workload,
    others: Mapping[str, Workload],
    machine: Machine,
    tokens: int,
    draft: Workload | None = None,
    window: int | None = None,
) -> dict[str, float]:
    """How many times as fast one conversation would be, by what is changed; and 8 of them together.

    others: the same model with fewer bits, by what that is called. draft: the model that guesses; None: one
    whose guesses cost DRAFT_COST. window: guesses a step; None: as many as are best.
    """
    rate, found = rate_of(machine, workload), dict[str, float]()
    before = seconds(workload.decode(1, tokens - 1), machine, rate)
    if before is None:
        return found
    for what, other in others.items():
        after = seconds(other.decode(1, tokens - 1), machine, rate_of(machine, other))
        found[what] = before / after if after else 0.0
    guess: float | None = DRAFT_COST * before
    if draft is not None:
        guess = seconds(draft.decode(1, tokens - 1), machine, rate_of(machine, draft))
    assert guess is not None, "the bandwidth is known"
    found["draft"] = max(
        drafted(count, ACCEPTANCE) * before / (verified + count * guess)
        for count in (range(1, MOST_DRAFTS + 1) if window is None else (window,))
        if (verified := seconds(_rows(workload, count + 1, tokens), machine, rate))
    )
    eight = seconds(workload.decode(8, tokens - 1), machine, rate)
    found["batch of 8"] = 8 * before / eight if eight else 0.0
    return found


def drafted(count: int, acceptance: float) -> float:
    """Tokens that a step with so many guesses brings (equation 1 of arXiv 2211.17192)."""
    return (1 - acceptance ** (count + 1)) / (1 - acceptance)


def _rows(workload: Workload, rows: int, tokens: int) -> Step:
    """A step with several rows of one conversation, which read its keys together."""
    many, one = workload.decode(rows, 0), workload.decode(1, 0)
    alone = workload.decode(1, tokens - 1)
    return Step(many.nbytes + alone.nbytes - one.nbytes, rows * alone.operations)

"""CUDA_VISIBLE_DEVICES: which cards a program sees, and in which order.

The rules are CUDA's (CUDA C++ programming guide, environment variables; NVIDIA MIG user guide, device
enumeration): numbers, beginnings of identifiers that fit one card alone, or slices. What is written behind
the first entry that names nothing is not looked at; a card named twice hides all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .driver import Card, Obstacle

VARIABLE = "CUDA_VISIBLE_DEVICES"


class Visible(NamedTuple):
    """cards: in CUDA's order as far as the variable gives one. obstacle: why there is none."""

    cards: tuple[Card, ...]
    obstacle: Obstacle | None = None


_NOTHING = ("", "none", "nodevfiles")
"""What people write, and schedulers (Slurm, for a job without GPUs), to show no card at all."""


def hides_all(value: str | None) -> Obstacle | None:
    """What is known of the variable without a look at the cards: that it names none, or begins with -1."""
    if value is None or (value.strip().lower() not in _NOTHING and not value.strip().startswith("-")):
        return None
    return Obstacle(f"{VARIABLE}={value} hides it", f"unset {VARIABLE} to use it", wanted=True)


def visible(cards: Sequence[Card], value: str | None) -> Visible:
    """The cards that a program sees. Where they differ CUDA counts them by speed, unless it is told to go by
    the bus (CUDA_DEVICE_ORDER=PCI_BUS_ID); here they are always in the order of the bus.
    """
    if value is None:
        return Visible(_first_slices(cards))
    if (hidden := hides_all(value)) is not None:
        return Visible((), hidden)
    seen: list[Card] = []
    for entry in (part.strip() for part in value.split(",")):
        card = _named(cards, entry)
        if card is None:
            break
        if card in seen:
            return Visible((), _wrong(value, f"names {entry} twice, which hides every GPU", cards))
        seen.append(card)
    if not seen:
        return Visible((), _wrong(value, "names no GPU that is here", cards))
    return Visible(_first_slices(seen))


def _named(cards: Sequence[Card], entry: str) -> Card | None:
    """The one card that an entry names; the first slice where a split card is named."""
    if entry.startswith(("GPU-", "MIG-GPU-", "MIG-")):
        # MIG-GPU-<identifier>/<instance>/<instance> is how drivers before 470 named slices.
        wanted = entry.removeprefix("MIG-").partition("/")[0] if entry.startswith("MIG-GPU-") else entry
        fitting = [card for card in cards if card.uuid.startswith(wanted)]
        if not fitting:  # a card that is split: its slices have identifiers of their own
            fitting = [card for card in cards if card.parent.startswith(wanted)]
            if len({card.parent for card in fitting}) == 1:
                return fitting[0]
        return fitting[0] if len(fitting) == 1 else None
    number = re.match(r"[+]?\d+", entry, re.ASCII)  # as strtoul reads it: what is behind the digits is let go
    if number is None:
        return None
    place = int(number[0])
    return next((card for card in cards if card.place == place), None)


def _first_slices(cards: Sequence[Card]) -> tuple[Card, ...]:
    """The cards without all slices but the first: a program can use no more than one."""
    first = next((card for card in cards if card.parent), None)
    return tuple(card for card in cards if not card.parent or card is first)


def _wrong(value: str, what: str, cards: Sequence[Card]) -> Obstacle:
    known = ", ".join(f"{card.place} {card.label}" for card in cards) or "none that the driver tells of"
    return Obstacle(f"{VARIABLE}={value[:80]} {what}", f"correct it, or unset it; there are: {known}")

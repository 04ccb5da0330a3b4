"""How a reply ended, as the history keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from engine import Finished, as_dict


class Outcome(NamedTuple):
    """For `ReplyWriter.finish`."""

    status: Literal["done", "interrupted", "error"]
    reason: str
    metrics: Mapping[str, Any]


def outcome_of(finished: Finished | None, *, empty: bool) -> Outcome:
    """What to store of a reply. finished: None if the program itself failed. empty: it has not a word.

    A reply that failed before its first word is none: as an interrupted one it goes.
    """
    if finished is None:
        return Outcome("interrupted" if empty else "error", "error", {})
    metrics = {**as_dict(finished.usage), **as_dict(finished.timings), "seed": finished.seed}
    if finished.reason == "error" and not empty:
        return Outcome("error", finished.reason, metrics)
    stopped = finished.reason in ("error", "aborted")
    return Outcome("interrupted" if stopped else "done", finished.reason, metrics)

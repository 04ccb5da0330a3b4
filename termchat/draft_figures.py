"""What came of drafts, for people and as JSON: how many were right, and what that brought."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .units import number, percent, percent_each

if TYPE_CHECKING:
    from engine import Usage


class DraftFigures(NamedTuple):
    """by: what guesses, "" nothing. off: why it does not now, "" if it does. tokens: of the replies. tried,
    kept: drafts by their place in a step, the first one first, and those that were right.
    """

    by: str
    off: str
    tokens: int
    tried: Sequence[int]
    kept: Sequence[int]

    @classmethod
    def of_replies(cls, by: str, off: str, usages: Sequence[Usage]) -> Self:
        """Those of several replies together."""
        tried, kept = (
            [sum(counts) for counts in zip_longest(*each, fillvalue=0)]
            for each in ([usage.drafts_tried for usage in usages], [usage.drafts_kept for usage in usages])
        )
        return cls(by, off, sum(usage.completion_tokens for usage in usages), tried, kept)

    @property
    def shares(self) -> list[float]:
        """Of the drafts at each place, the share that was right."""
        return [kept / tried for tried, kept in zip(self.tried, self.kept, strict=True)]

    @property
    def each(self) -> float | None:
        """Tokens a step of a conversation."""
        steps = self.tokens - sum(self.kept)
        return self.tokens / steps if steps > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON values under `drafts`; nothing if nothing guesses."""
        if not self.by:
            return {}
        return {
            "drafts": {
                "by": self.by,
                "off": self.off or None,
                "tokens": self.tokens,
                "tokens_a_step": self.each,
                "tried": list(self.tried),
                "kept": list(self.kept),
            }
        }

    def __str__(self) -> str:
        """A line, or "" if there is nothing to say."""
        if drafted := sum(self.tried):
            by = f" by {self.by}" if self.by else ""
            places = f", {percent_each(self.shares)} by place" if len(self.tried) > 1 else ""
            return (
                f"drafts{by}: {drafted} tokens, {sum(self.kept)} of them right "
                f"({percent(sum(self.kept) / drafted)}{places}), {number(self.each, 2)} tokens a step"
            )
        return f"drafts by {self.by}: none, as {self.off}" if self.by and self.off else ""

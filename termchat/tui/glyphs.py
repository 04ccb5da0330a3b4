"""The signs of a conversation's state. Each state has a shape of its own, never a colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conversations.conversation import ConversationState


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character for each thing."""

    states: dict[str, str]
    unread: str
    here: str
    left: str
    right: str
    bar_full: str
    bar_empty: str
    between: str

    def of(self, state: ConversationState, unread: bool) -> str:
        """The sign of a conversation."""
        if unread and state == "idle":
            return self.unread
        return self.states[state]


UNICODE = Glyphs(
    states={
        "idle": " ",
        "queued": "◌",
        "prefill": "◐",
        "decode": "●",
        "interrupted": "‖",
        "error": "✗",
    },
    unread="•",
    here="▌",
    left="‹",
    right="›",
    bar_full="━",
    bar_empty="━",
    between=" · ",
)

ASCII = Glyphs(
    states={"idle": " ", "queued": "o", "prefill": "~", "decode": "*", "interrupted": "=", "error": "x"},
    unread="+",
    here=">",
    left="<",
    right=">",
    bar_full="#",
    bar_empty=".",
    between=" | ",
)

STYLES = {
    "idle": "$chat-muted",
    "queued": "$chat-muted",
    "prefill": "$warning",
    "decode": "$success",
    "interrupted": "$warning",
    "error": "$error",
}
"""Colours that go with the signs."""

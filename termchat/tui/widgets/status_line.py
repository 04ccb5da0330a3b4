"""The line below the prompt: the keys that matter now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from textual.content import Content

from ...render.wrap import rows_of
from ..conversations.conversation import Conversation
from ..engines.model_slot import ModelSlot
from .figures import MUTED
from .lines import Lines

ON_MESSAGE = {
    "message.copy": "copy",
    "message.edit": "edit",
    "message.again": "again",
    "message.code": "code",
    "message.branch": "branch",
}


Place = Literal["prompt", "offer", "message", "list"]
"""Where the keys are; offer: in the prompt, which offers to complete what is typed."""


class StatusLine(Lines):
    """Keys and what they do."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 2; color: $chat-muted; }"

    def __init__(self, hint: Callable[[str], str]) -> None:
        """hint: the key of a command, by its id."""
        super().__init__()
        self._hint = hint

    def show(self, conversation: Conversation, slot: ModelSlot, place: Place, below: str = "") -> None:
        """place: where the keys are. below: the key to new text below the screen; "" if there is none."""
        parts = self._parts(conversation, slot, place)
        if below:
            parts.insert(0, f"new text below · {below}")
        rows = rows_of(parts, "   ", self.size.width)
        self.show_lines([Content.styled(rows[0], MUTED)])

    def _parts(self, conversation: Conversation, slot: ModelSlot, place: Place) -> list[str]:
        hint = self._hint
        stop = hint("reply.stop")
        if place == "list":
            return ["enter open", f"{stop} back", "letters go to the prompt"]
        if place == "offer":
            return ["tab take", "↑↓ choose", f"{stop} close"]
        if conversation.editing is not None and place == "prompt":
            return ["editing: enter sends a new version", f"{stop} leaves it"]
        if place == "message":
            versions = f"{hint('message.left')} {hint('message.right')} versions"
            return [f"{stop} back", versions, *(f"{hint(id)} {word}" for id, word in ON_MESSAGE.items())]
        if conversation.busy and slot.state != "absent":
            return ["enter queue", f"{stop} stop", f"{hint('chat.new')} new chat"]
        enter = "download" if slot.state == "absent" else "send"
        return [f"enter {enter}", "^J new line", f"{hint('help')} keys", f"{hint('palette')} commands"]

"""A message between Enter and the conversation: it waits for files, or for an answer of the user."""

from __future__ import annotations

from dataclasses import dataclass

from ...messages import StoredMessage
from ...slash import message_of


@dataclass(eq=False)
class Outgoing:
    """text: as it was typed; origins: of its characters. editing: the message that it is a new version of."""

    text: str
    origins: bytes
    editing: StoredMessage | None = None

    @property
    def said(self) -> str:
        """The message."""
        return message_of(self.text)

    @property
    def said_origins(self) -> bytes:
        """The origins of its characters."""
        return self.origins[len(self.text) - len(self.said) :]

"""Who is told of changes to conversations and replies, always on the event loop."""

from __future__ import annotations

from typing import Protocol

from .conversation import Conversation
from .live_reply import LiveReply


class Listener(Protocol):
    """The main screen, or a test."""

    def conversations_changed(self) -> None:
        """Conversations came, went, or look different in a list."""

    def conversation_changed(self, conversation: Conversation) -> None:
        """Messages, branch, queue or state of a conversation changed."""

    def reply_grew(self, conversation: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        """New text of a live reply."""

    def reply_ended(self, conversation: Conversation) -> None:
        """A reply of a conversation has ended."""

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """A sentence for the user."""

    def tell_lasting(self, text: str) -> None:
        """What is wrong as long as it is; "" when it is well again."""

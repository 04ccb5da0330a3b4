"""What is typed and not sent: the prompt has that of the conversation on screen, the others keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..messages import StoredMessage
from ..slash import as_typed
from .conversations.conversation import Conversation
from .conversations.origin import all_from
from .conversations.outgoing import Outgoing
from .widgets.conversation_view import ConversationView
from .widgets.prompt import Prompt


class Desk(Protocol):
    """Where it is typed: the main screen."""

    @property
    def shown(self) -> Conversation | None:
        """The conversation on screen; None before there is one."""

    @property
    def conversation(self) -> Conversation:
        """The same, where there must be one."""

    @property
    def view(self) -> ConversationView:
        """Its messages."""

    @property
    def prompt(self) -> Prompt:
        """Where the user types."""

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """Tell a sentence."""


class Drafts:
    """Takes texts out of the prompt and puts them back: nothing that was typed is lost on any way."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: tuple[Conversation | None, int] | None = None  # whose prompt, and how it was

    def keep(self) -> None:
        """Note what is typed as the draft of the conversation on screen."""
        if (conversation := self._desk.shown) is not None:
            prompt = self._desk.prompt
            conversation.draft, conversation.origins = prompt.value, prompt.origins

    def look(self) -> None:
        """Note it if it has changed since the last look."""
        if (seen := (self._desk.shown, self._desk.prompt.revision)) != self._seen:
            self._seen = seen
            self.keep()

    def load(self, conversation: Conversation) -> None:
        """Show what was typed in a conversation, which is on screen or will be."""
        self._desk.prompt.load(conversation.draft, conversation.origins)

    def take(self, text: str, origins: bytes) -> Outgoing:
        """What was typed leaves the prompt to be sent; what was put aside for it is there again."""
        conversation = self._desk.conversation
        known = len(origins) == len(text)
        taken = Outgoing(text, origins if known else all_from("back", len(text)), conversation.editing)
        self._end_edit(conversation)
        self._desk.prompt.recall_later(text)
        return taken

    def put_back(self, conversation: Conversation, taken: Outgoing) -> None:
        """A text that is not sent after all."""
        self._change(conversation, lambda: conversation.put_back(taken))

    def give_back(self, conversation: Conversation, texts: Sequence[str]) -> None:
        """Put messages that are not sent where they can be edited: before what is typed there."""
        if texts:
            text = as_typed("\n\n".join(texts))
            self._change(conversation, lambda: conversation.take_back(text))

    def edit(self, message: StoredMessage) -> None:
        """Put a message of the user into the prompt; sent, it becomes a new version."""
        conversation = self._desk.conversation
        if conversation.editing is not None:
            self.leave_edit()
        text = as_typed(message.text)
        self.put_back(conversation, Outgoing(text, all_from("back", len(text)), message))
        self._desk.prompt.focus()

    def leave_edit(self) -> None:
        """The message stays as it is; what was typed before it was edited is in the prompt again."""
        conversation, text = self._desk.conversation, self._desk.prompt.value
        changed = conversation.editing is not None and text != as_typed(conversation.editing.text)
        self._end_edit(conversation)
        if changed and text.strip():
            self._desk.prompt.recall_later(text)
            self._desk.notify_user("the message stays as it was; ↑ brings back what you wrote")

    def _end_edit(self, conversation: Conversation) -> None:
        (text, origins), conversation.aside = conversation.aside, ("", b"")
        conversation.editing = None
        self._desk.view.mark(None)
        self._desk.prompt.load(text, origins)
        self.keep()

    def _change(self, conversation: Conversation, change: Callable[[], None]) -> None:
        if conversation is not self._desk.shown:
            change()
            return
        self.keep()
        change()
        self.load(conversation)
        if conversation.editing is not None:
            self._desk.view.mark(conversation.editing.id)

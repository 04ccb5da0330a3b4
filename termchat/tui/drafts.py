"""What is typed and not sent: the prompt has that of the conversation on screen, the others keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..messages import StoredMessage
from .conversations.conversation import Conversation
from .conversations.origin import all_from
from .conversations.outgoing import Outgoing
from .keymap import shown
from .typed_text import as_typed
from .ui import Ui


class Drafts:
    """Takes texts out of the prompt and puts them back: nothing that was typed is lost on any way."""

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._seen: tuple[Conversation | None, int] | None = None  # whose prompt, and how it was

    @property
    def _shown(self) -> Conversation | None:
        return self._ui.app.conversations.shown

    def keep(self) -> None:
        """Note what is typed as the draft of the conversation on screen."""
        if (conversation := self._shown) is not None:
            prompt = self._ui.prompt
            conversation.draft, conversation.origins = prompt.value, prompt.origins

    def look(self) -> None:
        """Note it if it has changed since the last look."""
        if (seen := (self._shown, self._ui.prompt.revision)) != self._seen:
            self._seen = seen
            self.keep()

    def load(self, conversation: Conversation) -> None:
        """Show what was typed in a conversation, which is on screen or will be."""
        self._ui.prompt.load(conversation.draft, conversation.origins)

    def take(self, text: str, origins: bytes) -> Outgoing:
        """What was typed leaves the prompt to be sent; what was put aside for it is there again."""
        conversation = self._ui.conversation
        known = len(origins) == len(text)
        taken = Outgoing(text, origins if known else all_from("back", len(text)), conversation.editing)
        self._end_edit(conversation)
        self._ui.prompt.recall_later(text)
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
        conversation = self._ui.conversation
        if conversation.editing is not None:
            self.leave_edit()
        text = as_typed(message.text)
        self.put_back(conversation, Outgoing(text, all_from("back", len(text)), message))
        self._ui.prompt.focus()

    def leave_edit(self) -> None:
        """The message stays as it is; what was typed before it was edited is in the prompt again."""
        conversation, text = self._ui.conversation, self._ui.prompt.value
        changed = conversation.editing is not None and text != as_typed(conversation.editing.text)
        self._end_edit(conversation)
        if changed and text.strip():
            self._ui.prompt.recall_later(text)
            self._ui.notify_user(f"the message stays as it was; {shown('up')} brings back what you wrote")

    def _end_edit(self, conversation: Conversation) -> None:
        (text, origins), conversation.aside = conversation.aside, ("", b"")
        conversation.editing = None
        self._ui.view.mark(None)
        self._ui.prompt.load(text, origins)
        self.keep()

    def _change(self, conversation: Conversation, change: Callable[[], None]) -> None:
        if conversation is not self._shown:
            change()
            return
        self.keep()
        change()
        self.load(conversation)
        if conversation.editing is not None:
            self._ui.view.mark(conversation.editing.id)

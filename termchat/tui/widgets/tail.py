"""Below the last message: what is queued, what went wrong, what can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from textual.content import Content
from textual.widgets import Static

from ...units import percent
from ..conversations.conversation import Conversation
from ..engines.model_slot import ModelSlot
from ..glyphs import Glyphs
from .kept_rows import Kept

_FULL = "the context is full: /compact goes on in a new conversation, and nothing is lost"


class Tail(Kept, Static):
    """A line for each."""

    DEFAULT_CSS = "Tail { height: auto; max-height: 8; padding: 0 3; color: $chat-muted; }"

    def __init__(self, glyphs: Glyphs, hint: Callable[[str], str]) -> None:
        """hint: the key of a command, by its id."""
        super().__init__("", markup=False, classes="-empty")
        self._glyphs = glyphs
        self._hint = hint
        self._shown = ""

    def show(self, conversation: Conversation, slot: ModelSlot) -> None:
        """Draw the lines, if they have changed. slot: the conversation's model."""
        lines = Content("\n").join(self._lines(conversation, slot))
        if lines.plain != self._shown:
            self._shown = lines.plain
            self.set_class(not lines.plain, "-empty")
            self.update(lines)

    def _lines(self, conversation: Conversation, slot: ModelSlot) -> Iterator[Content]:
        last = conversation.messages[-1] if conversation.messages else None
        if conversation.sending and not conversation.live:
            other = "waiting for the reply that another termchat makes here"
            waiting = other if conversation.busy_elsewhere else self._waiting(slot)
            yield Content.styled(waiting, "italic")
        if conversation.error:
            sign = self._glyphs.states["error"]
            yield Content.styled(f"{sign} {conversation.error}", "$error")
            hint = f"{self._hint('reply.again')} tries again"
            if conversation.full:
                alone = len(conversation.messages) == 1  # a new conversation would not have more room for it
                hint = f"{self._hint('reply.stop')} twice edits it" if alone else _FULL
            yield Content(hint)
        elif conversation.full:
            yield Content(_FULL)
        elif last is not None and last.status == "interrupted" and not conversation.busy:
            yield Content(f"{self._hint('reply.continue')} continues this reply")
        elif conversation.ending == "unanswered" and not conversation.busy:
            why = "stopped before the first token" if conversation.cut else "not answered"
            yield Content(f"{why}{self._glyphs.between}{self._hint('reply.again')} answers")
        for text in conversation.queue:
            first, *more = text.split("\n")
            rest = f"  (+{len(more)} lines)" if more else ""
            yield Content.assemble(("queued  ", "$chat-muted italic"), (first[:200] + rest, "$chat-muted"))

    def _waiting(self, slot: ModelSlot) -> str:
        """What a message waits for."""
        if slot.state == "absent":
            stop = self._hint("reply.stop")
            return f"{slot.error}: enter fetches it, {stop} stops waiting"
        if slot.state == "downloading":
            share = slot.downloaded_share
            return f"fetching {slot.title}" + (f", {percent(share)}" if share is not None else "")
        words = {"starting": "loading the model", "loading": f"loading {slot.title}"}
        words["waiting"] = f"{slot.title} waits until there is memory for it"
        return words.get(slot.state, "waiting for the engine")

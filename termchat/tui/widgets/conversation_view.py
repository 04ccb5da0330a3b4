"""The conversation on screen: the transcript of its messages, and what goes below the last one."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult

from ...messages import StoredMessage
from ...resolved_model import model_title
from ...units import count, milliseconds, rate
from ..conversations.context_full import summary_in
from ..conversations.conversation import Conversation
from ..conversations.live_reply import LiveReply
from ..glyphs import ASCII, Glyphs
from .kept_rows import Stack
from .message_rows import MessageRows
from .tail import Tail
from .transcript import Transcript

MOST_DRAWN = 100_000
"""Characters of a message that was not generated."""


class ConversationView(Stack):
    """Shows one conversation and follows its end until the user scrolls up."""

    DEFAULT_CSS = """
    ConversationView { background: $background; }
    ConversationView Transcript {
        height: 1fr; background: $background; padding: 1 0 0 1; scrollbar-size-vertical: 1;
    }
    ConversationView.-bare Transcript { padding: 0 0 0 1; }
    ConversationView.-bare Tail.-empty { display: none; }
    """

    def __init__(self, glyphs: Glyphs, hint: Callable[[str], str]) -> None:
        """hint: the key of a command, by its id."""
        super().__init__()
        self._glyphs = glyphs
        self._conversation: Conversation | None = None
        self._known: dict[int, MessageRows] = {}
        self._stored: dict[int, StoredMessage] = {}  # as they were when their texts were taken over
        self._summary: tuple[str, MessageRows] | None = None
        self._dirty = False
        self._unseen = False  # text came while the end was not on screen
        self._code = (0, 0)  # the message whose code was copied last, and which of its blocks
        self.thinking_folded: bool | None = None
        self.confidence = False
        self.transcript = Transcript(ascii=glyphs is ASCII)
        self.tail = Tail(glyphs, hint)

    def compose(self) -> ComposeResult:
        """Messages, and the lines below them."""
        yield self.transcript
        yield self.tail

    @property
    def focused(self) -> StoredMessage | None:
        """The message the keys are at."""
        at = self.transcript.cursor
        if at is None or self._conversation is None or not self.transcript.has_focus:
            return None
        messages, above = self._conversation.messages, len(self._lead(self._conversation))
        return messages[at - above] if above <= at < above + len(messages) else None

    @property
    def unseen(self) -> bool:
        """Whether there is new text below the screen."""
        self._unseen = self._unseen and not self.transcript.following
        return self._unseen

    def show(self, conversation: Conversation) -> None:
        """Show a conversation as it is now; only what has changed is made again."""
        if conversation is not self._conversation:
            self._conversation, self._known, self._stored, self._unseen = conversation, {}, {}, False
        versions: dict[int | None, list[int]] = {}  # by parent, the oldest first
        for id, stored in sorted((conversation.tree or {}).items()):
            versions.setdefault(stored.parent_id, []).append(id)
        messages = conversation.messages
        branch = (self._message(conversation, each, versions[each.parent_id]) for each in messages)
        wanted = [*self._lead(conversation), *branch]
        shown = list(self.transcript.messages)
        if wanted[: len(shown)] != shown or not shown:
            self.transcript.show(wanted)
        else:
            for message in wanted[len(shown) :]:
                self.transcript.add(message)
            self.transcript.flush()

    def forget_rows(self) -> None:
        """Make all messages again, as soon as the conversation is shown."""
        self._conversation = self._summary = None

    def grow(self, conversation: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        """Take in new text of a reply; `flush` shows it."""
        message = self._known.get(reply.message_id)
        if conversation is self._conversation and message is not None and not message.complete:
            message.append(answer, thinking)
            self._dirty = True

    def flush(self) -> None:
        """Show what came since the last time."""
        if self._dirty:
            self._dirty = False
            self._unseen = True  # while the end is on screen it is seen
            self.transcript.flush()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.transcript.follow()

    def step(self, rows: int) -> bool:
        """Move the keys to the message above (-1) or below (1); False: there is none below."""
        transcript = self.transcript
        last = len(transcript.messages) - 1
        if last < 0 or (rows > 0 and transcript.cursor in (None, last)):
            transcript.cursor = None
            return False
        transcript.move_cursor(rows)
        transcript.focus()
        return True

    def mark(self, message_id: int | None) -> None:
        """Mark a message, or none, while the keys are elsewhere."""
        self.transcript.cursor = self._place(message_id)

    def go_to(self, message_id: int) -> None:
        """Put the keys at a message."""
        ids = [stored.id for stored in self._conversation.messages] if self._conversation is not None else []
        if message_id in ids:
            above = len(self._lead(self._conversation)) if self._conversation is not None else 0
            self.transcript.reveal(above + ids.index(message_id))
            self.transcript.focus()

    def code_blocks(self, message_id: int) -> list[str]:
        """The code blocks of a message."""
        message = self._known.get(message_id)
        return message.code_blocks() if message is not None else []

    def next_code(self, message_id: int) -> int:
        """Which of a message's code blocks to copy: the last one, then with each call the one before."""
        count = len(self.code_blocks(message_id))
        known, before = self._code
        at = (before - 1) % count if known == message_id else count - 1
        self._code = (message_id, at)
        return at

    def fold_thinking(self, message_id: int) -> None:
        """Fold or unfold the thinking of a message."""
        if (place := self._place(message_id)) is not None:
            self.transcript.fold_thinking(place)

    def fold_all(self, folded: bool) -> None:
        """Fold or unfold the thinking of all messages."""
        self.thinking_folded = folded
        for message in self._known.values():
            message.fold_thinking(folded)
        self.transcript.flush()

    def show_confidence(self, on: bool) -> None:
        """Mark doubtful parts of replies, or do not."""
        self.confidence = on
        if self._conversation is not None:
            self.show(self._conversation)
            self.transcript.refresh()

    def _place(self, message_id: int | None) -> int | None:
        """The number of a message among those that are drawn."""
        ids = [message.id for message in self.transcript.messages]
        return ids.index(str(message_id)) if str(message_id) in ids else None

    def _lead(self, conversation: Conversation) -> list[MessageRows]:
        """What stands above the first message: the summary of the conversation that this one goes on from."""
        text = summary_in(conversation.system)
        if self._summary is None or self._summary[0] != text:
            self._summary = (
                text,
                MessageRows("summary", "system", text, label="summary of what was said before"),
            )
        return [self._summary[1]] if text else []

    def _message(self, conversation: Conversation, stored: StoredMessage, versions: list[int]) -> MessageRows:
        """The message as it is drawn; the one that is there already, if it can still grow or need not.

        versions: the ids of the message and its alternatives.
        """
        live = conversation.live.get(stored.id)
        label, note = self._label(stored, versions), self._note(conversation, stored)
        known = self._known.get(stored.id)
        if (
            known is None
            or (live is not None and known.complete)
            or self._written_elsewhere(conversation, stored)
        ):
            known = MessageRows(
                str(stored.id),
                stored.role if stored.role != "tool" else "system",
                live.text if live is not None else _drawn(stored),
                thinking=live.thinking if live is not None else stored.thinking,
                complete=live is None,
                between=self._glyphs.between,
            )
            if self.thinking_folded is not None:
                known.fold_thinking(self.thinking_folded)
            self._known[stored.id] = known
            self._stored[stored.id] = stored
        elif live is None and not known.complete:
            known.finish()
            self._stored[stored.id] = stored
        known.label, known.note = label, note
        doubts = live.doubts if live is not None else conversation.doubts.get(stored.id)
        known.marked = doubts.spans if doubts is not None and self.confidence else ()
        return known

    def _written_elsewhere(self, conversation: Conversation, stored: StoredMessage) -> bool:
        """Whether another window has gone on with a message that was unfinished when it was drawn."""
        drawn = self._stored[stored.id]
        unfinished = drawn.status in ("streaming", "interrupted") and stored.id not in conversation.live
        other = (drawn.text, drawn.thinking) != (stored.text, stored.thinking)
        return unfinished and other and self._known[stored.id].complete

    def _label(self, message: StoredMessage, versions: list[int]) -> str:
        who = {"user": "you", "assistant": model_title(message.model) or "assistant"}
        label = who.get(message.role, message.role)
        if len(versions) > 1:
            at = versions.index(message.id) + 1
            label += f"  {self._glyphs.left}{at}/{len(versions)}{self._glyphs.right}"
        return label

    def _note(self, conversation: Conversation, message: StoredMessage) -> list[str]:
        if message.role != "assistant" or message.id in conversation.live:
            return []
        parts = figures_of(message)
        if self.confidence and (doubts := conversation.doubts.get(message.id)) is not None:
            parts.append(f"{count(len(doubts.spans))} of {count(doubts.tokens)} doubtful")
        return parts


def figures_of(message: StoredMessage) -> list[str]:
    """How a reply ended, if not by itself, and its figures."""
    metrics = message.metrics
    ends = {
        "length": "token limit reached",
        "context": "context full",
        "capacity": "KV cache full",
        "aborted": "stopped",
    }
    end = ends.get(message.finish_reason or "") or {"interrupted": "stopped", "error": "failed"}.get(
        message.status
    )
    parts = [end] if end else []
    if (speed := _number(metrics.get("tokens_per_second"))) is not None:
        parts.append(f"{rate(speed)} tok/s")
    if (first := _number(metrics.get("ttft_ms"))) is not None:
        parts.append(f"first token {milliseconds(first)}")
    if (tokens := _number(metrics.get("completion_tokens"))) is not None:
        parts.append(f"{count(tokens)} tokens")
    if cached := _number(metrics.get("cached_tokens")):
        parts.append(f"{count(cached)} cached")
    return parts


def _drawn(stored: StoredMessage) -> str:
    """What is drawn of a message's text: laying out megabytes that were pasted would stop the interface."""
    more = len(stored.text) - MOST_DRAWN
    if stored.role == "assistant" or more <= 0:
        return stored.text
    return f"{stored.text[:MOST_DRAWN]}\n… {more} more characters, which were sent and are stored"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

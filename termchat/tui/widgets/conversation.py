"""The conversation on screen: its messages, one widget each, and what goes below the last one."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.message import Message as Event
from textual.widget import Widget
from textual.widgets import Static

from ...render import sanitize
from ...store import StoredMessage
from ...widgets.message import Message
from ..chat import Chat, LiveReply
from ..format import count, milliseconds, rate
from ..glyphs import UNICODE, Glyphs

PAGE = 40
"""Messages that are shown at first, and that come with each step to earlier ones."""


class ChatMessage(Message, can_focus=True):
    """A message of the conversation, by its id in the store."""

    DEFAULT_CSS = """
    ChatMessage { border-left: blank; }
    ChatMessage:focus { border-left: outer $primary; }
    """

    def __init__(self, message: StoredMessage, live: LiveReply | None, label: str, note: str) -> None:
        super().__init__(
            message.role if message.role != "tool" else "system",
            live.text if live is not None else message.text,
            thinking=live.thinking if live is not None else message.thinking,
            label=label,
            note=note,
            complete=live is None,
        )
        self.stored = message
        self.live = live is not None
        self.shown_label = label
        self._shown_note = note

    def update_from(self, message: StoredMessage, note: str, *, done: bool) -> None:
        """Take over what the store says now."""
        self.stored = message
        if self.live and done:
            self.live = False
            self.finish(note)
        elif note != self._shown_note:
            self.set_note(note)
        self._shown_note = note


class Earlier(Static):
    """Stands for the messages above; a click brings them."""

    DEFAULT_CSS = "Earlier { height: 1; margin: 0 0 1 0; color: $chat-muted; text-align: center; }"

    class Wanted(Event):
        """The earlier messages are wanted."""

    def on_click(self, event: Click) -> None:
        """Ask for them."""
        event.stop()
        self.post_message(self.Wanted())


class Tail(Static):
    """Below the last message: what is queued, what went wrong, what can be done."""

    DEFAULT_CSS = "Tail { height: auto; padding: 0 2; color: $chat-muted; }"


class ConversationView(VerticalScroll, can_focus=False):
    """Shows one conversation and follows its end until the user scrolls up."""

    DEFAULT_CSS = """
    ConversationView { background: $background; padding: 1 1 0 0; scrollbar-size-vertical: 1; }
    """

    def __init__(self, glyphs: Glyphs = UNICODE, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._chat: Chat | None = None
        self._limit = PAGE
        self._dirty: set[int] = set()
        self._shown: dict[int, ChatMessage] = {}
        self.thinking_folded: bool | None = None

    def compose(self) -> ComposeResult:
        """What is always there."""
        earlier = Earlier("", markup=False)
        earlier.display = False
        yield earlier
        yield Tail("", markup=False)

    def on_mount(self) -> None:
        """Stick to the end."""
        self.anchor()

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages that are shown, first one first."""
        return [child for child in self.children if isinstance(child, ChatMessage)]

    @property
    def focused(self) -> ChatMessage | None:
        """The message the keys are at."""
        focused = self.screen.focused
        return focused if isinstance(focused, ChatMessage) else None

    async def show(self, chat: Chat) -> None:
        """Show a conversation as it is now; only what has changed is made again."""
        if chat is not self._chat:
            self._chat, self._limit = chat, PAGE
            self.anchor()
        wanted = chat.messages
        hidden = max(0, len(wanted) - self._limit)
        await self._sync(chat, wanted[hidden:])
        earlier = self.query_one(Earlier)
        earlier.display = hidden > 0
        if hidden:
            earlier.update(Content(f"{hidden} earlier messages (click, or alt+↑ at the top)"))
        self.query_one(Tail).update(self._tail(chat))

    async def show_earlier(self) -> None:
        """Show more of the messages above."""
        if self._chat is not None and len(self._chat.messages) > self._limit:
            self._limit += PAGE
            await self.show(self._chat)

    def grow(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        """Take in new text of a reply; `flush` shows it."""
        widget = self._shown.get(reply.message_id)
        if chat is self._chat and widget is not None and widget.live:
            widget.append(answer, thinking)
            self._dirty.add(reply.message_id)

    def flush(self) -> None:
        """Show what came since the last time."""
        for id in self._dirty:
            if id in self._shown:
                self._shown[id].flush()
        self._dirty.clear()

    def step(self, rows: int) -> ChatMessage | None:
        """Move the keys to the message above (-1) or below (1); None: there is none below."""
        messages = self.messages
        at = messages.index(self.focused) if self.focused in messages else len(messages)
        at += rows
        if not messages or at >= len(messages):
            return None
        chosen = messages[max(0, at)]
        chosen.focus()
        return chosen

    def fold_thinking(self, folded: bool) -> None:
        """Fold or unfold the thinking of all messages."""
        self.thinking_folded = folded
        for message in self.messages:
            message.fold_thinking(folded)

    async def _sync(self, chat: Chat, wanted: list[StoredMessage]) -> None:
        """Bring the widgets in line with the messages."""
        stale = [
            widget
            for id, widget in self._shown.items()
            if not self._still_right(chat, widget) or id not in {message.id for message in wanted}
        ]
        for widget in stale:
            del self._shown[widget.stored.id]
        focused = self.focused
        new: list[tuple[ChatMessage, Widget]] = []
        before: Widget = self.query_one(Tail)
        for message in reversed(wanted):
            label, note = self._label(chat, message), self._note(chat, message)
            known = self._shown.get(message.id)
            if known is None:
                widget = ChatMessage(message, chat.live.get(message.id), label, note)
                if self.thinking_folded is not None:
                    widget.fold_thinking(self.thinking_folded)
                self._shown[message.id] = widget
                new.append((widget, before))
            else:
                widget = known
                widget.update_from(message, note, done=message.id not in chat.live)
            before = widget
        with self.app.batch_update():
            await self._remove(stale)
            await self._mount(new)
        if focused is not None and focused in stale and focused.stored.id in self._shown:
            self._shown[focused.stored.id].focus()

    def _still_right(self, chat: Chat, widget: ChatMessage) -> bool:
        """Whether a widget can stay: not if it would have to grow again, or has another label now."""
        message = (chat.tree or {}).get(widget.stored.id)
        if message is None or self._label(chat, message) != widget.shown_label:
            return False
        return widget.live or message.id not in chat.live

    async def _remove(self, widgets: Iterable[ChatMessage]) -> None:
        gone = list(widgets)
        if gone:
            await self.remove_children(gone)

    async def _mount(self, new: list[tuple[ChatMessage, Widget]]) -> None:
        """Mount widgets, those that stand together in one go."""
        groups: list[tuple[list[ChatMessage], Widget]] = []
        for widget, before in new:  # from the last to the first
            if groups and before is groups[-1][0][0]:
                groups[-1][0].insert(0, widget)
            else:
                groups.append(([widget], before))
        for widgets, before in groups:
            await self.mount_all(widgets, before=before)

    def _label(self, chat: Chat, message: StoredMessage) -> str:
        who = {"user": "you", "assistant": message.model.rpartition("/")[2] or "assistant"}
        label = who.get(message.role, message.role)
        siblings = chat.siblings(message)
        if len(siblings) > 1:
            at = siblings.index(message.id) + 1
            label += f"  {self._glyphs.left}{at}/{len(siblings)}{self._glyphs.right}"
        return label

    def _note(self, chat: Chat, message: StoredMessage) -> str:
        if message.role != "assistant" or message.id in chat.live:
            return ""
        metrics = message.metrics
        parts = []
        if (speed := _number(metrics.get("tokens_per_second"))) is not None:
            parts.append(f"{rate(speed)} tok/s")
        if (first := _number(metrics.get("ttft_ms"))) is not None:
            parts.append(f"first token {milliseconds(first)}")
        if (tokens := _number(metrics.get("completion_tokens"))) is not None:
            parts.append(f"{count(tokens)} tokens")
        if cached := _number(metrics.get("cached_tokens")):
            parts.append(f"{count(cached)} cached")
        ends = {
            "length": "token limit reached",
            "context": "context full",
            "capacity": "KV cache full",
        }
        if message.finish_reason in ends:
            parts.append(ends[message.finish_reason])
        if message.status in ("interrupted", "error"):
            parts.append("stopped" if message.status == "interrupted" else "failed")
        return " · ".join(parts)

    def _tail(self, chat: Chat) -> Content:
        lines: list[Content] = []
        last = chat.messages[-1] if chat.messages else None
        if chat.sending and not chat.live:
            lines.append(Content.styled("waiting for the engine", "italic"))
        if chat.error:
            lines.append(Content.assemble(("✗ ", "$error"), (sanitize(chat.error), "$error")))
            hint = "/compact makes room" if chat.full else "ctrl+y tries again"
            lines.append(Content.styled(hint, ""))
        elif last is not None and last.status == "interrupted" and not chat.busy:
            lines.append(Content("f9 continues this reply"))
        for text in chat.queue:
            first, *more = sanitize(text).split("\n")
            lines.append(
                Content.assemble(
                    ("queued  ", "$chat-muted italic"),
                    (first[:200] + (f"  (+{len(more)} lines)" if more else ""), "$chat-muted"),
                )
            )
        return Content("\n").join(lines)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

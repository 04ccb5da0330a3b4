"""The main screen: told of all changes, it draws them; keys, Enter and pastes begin here."""

from __future__ import annotations

import asyncio

from textual import events
from textual.binding import BindingsMap

from ..command_runner import CommandRunner
from ..commands import COMMANDS
from ..commands.sending import submit
from ..completion import CommandCompleter
from ..conversations.context_full import summary_in, warning
from ..conversations.conversation import Conversation
from ..conversations.live_reply import LiveReply
from ..conversations.outgoing import Outgoing
from ..drafts import Drafts
from ..engines.model_slot import ModelSlot
from ..keymap import Keys, on_message, shown
from ..terminal.typeahead import is_text
from ..widgets.conversation_list import ConversationList
from ..widgets.engine_panel import EngineLine, EnginePanel
from ..widgets.notices import Notices
from ..widgets.prompt import Prompt
from ..widgets.status_line import Place, StatusLine
from ..widgets.suggestions import Suggestions
from ..widgets.title_line import TitleLine
from ..widgets.welcome import Welcome
from .folding import FoldingScreen
from .help import HelpScreen

TICK_SECONDS = 0.1
TICKS_A_POLL = 2
TICKS_A_LOOK = 10


class MainScreen(FoldingScreen):
    """Puts conversations, engine and widgets together."""

    def __init__(self, keys: Keys) -> None:
        super().__init__(keys)
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(keys.bindings())])
        self.commands = CommandRunner(self, COMMANDS)
        self.drafts = Drafts(self)
        self.escaped_at = 0.0
        self.sending = asyncio.Lock()
        self._stale = False
        self._list_stale = False
        self._streams = False

    @property
    def conversation(self) -> Conversation:
        """The conversation on screen."""
        assert self.shown is not None, "there always is one"
        return self.shown

    @property
    def slot(self) -> ModelSlot:
        """The model of the conversation on screen."""
        return self.app.engines.of(self.conversation.model)

    def on_mount(self) -> None:
        """Start the timer: one for all, as every moment in which something changes is drawn by itself."""
        self.view.display = False
        self.prompt.completer = CommandCompleter(self, COMMANDS)
        self.prompt.focus()
        self._ticks = 0
        self.set_interval(TICK_SECONDS, self._tick)

    # What is told (listener.py)

    def conversations_changed(self) -> None:
        """The list is drawn again."""
        self._list_stale = True

    def conversation_changed(self, conversation: Conversation) -> None:
        """The conversation is drawn again, once for all changes of this moment."""
        self._list_stale = True
        if conversation is self.shown and not self._stale:
            self._stale = True
            self.call_next(self._redraw)

    def reply_grew(self, conversation: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        """Text for the conversation on screen; others keep it as text."""
        if self.app.fault is None and conversation is self.shown:
            self.view.grow(conversation, reply, answer, thinking)

    def reply_ended(self, conversation: Conversation) -> None:
        """Ring for a conversation that is not on screen."""
        if self.app.fault is not None or conversation.gone:
            return
        if conversation is not self.shown or not self.app.app_focus:
            self.app.bell()
        self._warn(conversation)

    def _warn(self, conversation: Conversation) -> None:
        """Say once before it happens that a context gets full."""
        said = warning(conversation, self.app.engines.of(conversation.model).context_length)
        if said and not conversation.warned:
            conversation.warned = True
            self.notify_user(said)

    def tell_lasting(self, text: str) -> None:
        """A literal sentence above the prompt that stays until it is replaced; "" is none."""
        if self.app.fault is not None:
            return
        self.query_one(Notices).keep(text)

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """A literal sentence above the prompt."""
        if self.app.fault is not None:  # nothing is drawn any more, but what is saved must be
            return
        self.query_one(Notices).tell(text, error=error)

    def withdraw(self, text: str) -> None:
        """A sentence above the prompt that holds no more."""
        self.query_one(Notices).withdraw(text)

    # Drawing

    async def _redraw(self) -> None:
        self._stale = False
        conversation = self.shown
        if conversation is None:
            return
        self.app.turns.focus()
        waits = self.slot.state in ("starting", "absent", "downloading")
        shown = bool(conversation.error or summary_in(conversation.system))
        empty = not shown and (not conversation.messages or (waits and len(conversation.messages) == 1))
        self.query_one(Welcome).display = empty
        self.view.display = not empty
        if not empty:
            self.view.show(conversation)
        self._draw_frame()

    def _draw_frame(self) -> None:
        """Title, welcome and status line."""
        conversation, slot = self.conversation, self.slot
        self.query_one(TitleLine).show(conversation, slot.title, slot.context_length)
        self.query_one(StatusLine).show(conversation, slot, self._place(), self._way_down())
        self.view.tail.show(conversation, slot)
        if self.query_one(Welcome).display:
            self.query_one(Welcome).show(slot, len(conversation.messages) + len(conversation.queue))
            if slot.state == "ready" and conversation.messages:
                self.conversation_changed(conversation)

    def _place(self) -> Place:
        """Where the keys are."""
        if self.view.focused is not None:
            return "message"
        if self.prompt.offer.items:
            return "offer"
        return "list" if self.in_list else "prompt"

    def _way_down(self) -> str:
        """The key that goes to the new text below the screen; "" if there is none."""
        if not self.view.unseen:
            return ""
        held = (key for key in self.keys.of("scroll.end") if "+" in key)
        if self.prompt.text:
            return shown(next(held, "")) or self.keys.hint("scroll.page_down")
        return self.keys.hint("scroll.end")

    def poll(self) -> None:
        """Five times a second: the engine's snapshot, for panel and list."""
        app = self.app
        if app.conversations.shown is None or not self.is_mounted:
            return
        streams = any(conversation.live for conversation in app.conversations.all)
        if streams is not self._streams:  # each blink is a frame of its own; beside moving text it can rest
            self._streams = streams
            self.prompt.cursor_blink = app.blinks and not streams
        app.monitor.read()
        for conversation in app.conversations.all:
            if conversation.live and not conversation.warned:
                self._warn(conversation)
        panel = self.query_one(EnginePanel)
        if panel.display:
            panel.show(self.slot, app.monitor.stats)
        else:
            self.query_one(EngineLine).show(self.slot, app.monitor.stats)
        self._draw_frame()
        self._draw_list()
        app.show_stats()

    def _draw_list(self) -> None:
        self._list_stale = False
        app = self.app
        known = app.conversations
        self.query_one(ConversationList).update(known.all, known.shown, app.monitor.speeds)

    def _tick(self) -> None:
        self.app.streaming.look()
        self.view.flush()
        self._ticks += 1
        if self._ticks % TICKS_A_LOOK == 0:
            self._look()
        if self._ticks % TICKS_A_POLL == 0:
            self.poll()
        elif self._list_stale:
            self._draw_list()

    def _look(self) -> None:
        """Once a second: what was typed goes to the store, what others have stored comes from there."""
        self.drafts.look()
        self.app.conversations.unsent.keep(self.app.conversations.all)
        self.run_worker(self.app.conversations.windows.refresh())

    # Doing

    def hint(self, id: str) -> str:
        """How to carry out a command: its first key, else how it is typed."""
        return self.keys.hint(id)

    async def action_command(self, id: str, key: str = "") -> None:
        """A key of a command."""
        self.commands.run_id(id)

    def run_line(self, line: str) -> None:
        """Carry out a typed command."""
        self.commands.run_line(line)

    async def open_help(self) -> None:
        """Show all keys and commands, until that is closed."""
        await self.app.push_screen_wait(HelpScreen(COMMANDS, self.keys, self.app.glyphs))

    def on_screen_suspend(self) -> None:
        """A dialog is above this screen."""
        self.commands.asks()

    def on_key(self, event: events.Key) -> None:
        """What is typed where nothing takes it goes to the prompt."""
        if is_text(event) and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(event.character or "")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that are letters belong to messages: elsewhere they are typed. Those that scroll are the
        prompt's where it has more rows than it shows, unless Ctrl or Alt is held; so are alt+left and
        alt+right where it has a text.
        """
        id, key = map(str, parameters) if action == "command" and len(parameters) == 2 else ("", "")
        if on_message(id):
            return self.view.focused is not None
        if id in ("scroll.page_up", "scroll.page_down"):
            typing = self.prompt.has_focus and self.prompt.max_scroll_y > 0 and "+" not in key
            return not typing and not self.in_list
        if key in ("alt+left", "alt+right"):  # in a text they go by a word, as in every other program
            return not (self.prompt.has_focus and self.prompt.text)
        if id == "scroll.end":
            typing = self.prompt.has_focus and bool(self.prompt.text) and "+" not in key
            return not typing and not self.in_list
        return True

    async def switch_to(self, conversation: Conversation) -> None:
        """Put a conversation on screen, with what was typed there."""
        self.drafts.keep()
        self.drafts.load(conversation)
        if self.wanted.swapped:
            self.want(swapped=False)
        left = await self.app.conversations.show(conversation)
        if left:
            self.drafts.put_back(conversation, Outgoing(left, b""))
        self.prompt.focus()

    def go_to_message(self, message_id: int) -> None:
        """Put the keys at a message, once it is drawn."""
        self.call_after_refresh(self.view.go_to, message_id)

    async def on_conversation_list_chosen(self, event: ConversationList.Chosen) -> None:
        """A row of the list."""
        await self.switch_to(event.conversation)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The keys in the status line depend on the focus; the mark of a message goes with it."""
        if self.shown is not None:
            if event.widget is self.prompt and self.conversation.editing is None:
                self.view.mark(None)
            self._draw_frame()

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted where nothing takes it goes to the prompt."""
        event.stop()
        self.prompt.focus()
        self.prompt.paste(event.text)

    def on_completing_offered(self) -> None:
        """Show what can be completed."""
        self.query_one(Suggestions).show(self.prompt.offer, self.room_to_offer)
        self._draw_frame()

    def on_suggestions_taken(self, event: Suggestions.Taken) -> None:
        """A click on what is offered, if it still is."""
        if event.offer == self.prompt.offer:
            self.prompt.take(event.index)
        self.prompt.focus()

    async def on_prompt_left(self) -> None:
        """Ctrl-D in an empty prompt."""
        await self.app.action_quit()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Enter. What is sent is seen."""
        self.view.transcript.follow()
        submit(self, event.text, event.origins)

"""What the screens see of the application, and commands of the interface; both are made of more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from textual.screen import Screen
from textual.widget import Widget

from ..config import Config
from .conversations.collection import Conversations
from .conversations.conversation import Conversation
from .conversations.listener import Listener
from .conversations.store_thread import StoreThread
from .conversations.streaming import Streaming
from .conversations.turns import Turns
from .drafts import Drafts
from .engines.loader import Loader
from .engines.model_slot import ModelSlot
from .engines.monitor import Monitor
from .engines.pool import EnginePool
from .glyphs import Glyphs
from .screens.layout import Layout, Wanted
from .widgets.conversation_view import ConversationView
from .widgets.prompt import Prompt

T = TypeVar("T")


class Program(Protocol):
    """The application: what works without a screen, and what Textual's own does.

    folder: where it was started. fault: why it ends, if it does by one. blinks: whether cursors may.
    """

    config: Config
    folder: Path
    glyphs: Glyphs
    fault: BaseException | None
    loader: Loader
    engines: EnginePool
    store: StoreThread
    conversations: Conversations
    streaming: Streaming
    turns: Turns
    monitor: Monitor
    app_focus: bool
    blinks: bool
    theme: str

    @property
    def theme_names(self) -> list[str]:
        """The themes that can be chosen."""

    @property
    def screen(self) -> object:
        """The one on top."""

    async def push_screen_wait(self, screen: Screen[T]) -> T | Any:
        """Ask with a screen of its own."""

    def copy_to_clipboard(self, text: str) -> None:
        """Put a text where other programs find it."""

    def bell(self) -> None:
        """Ring."""

    def suspend(self) -> AbstractContextManager[None]:
        """Another program has the terminal."""

    def batch_update(self) -> AbstractContextManager[None]:
        """Nothing is drawn."""

    def pause(self) -> None:
        """The shell has the terminal. CommandError."""

    def redraw(self) -> None:
        """Draw everything anew."""

    def show_stats(self) -> None:
        """New figures for the screen with the plots, if it is open."""

    def open_stats(self) -> None:
        """Open that screen."""

    def action_command_palette(self) -> None:
        """Open the palette."""

    async def action_quit(self) -> None:
        """Stop and save what runs, then leave."""


class Ui(Listener, Protocol):
    """The main screen, or a test. sending: held by whoever prepares a message. escaped_at: the last Esc."""

    app: Program
    wanted: Wanted
    sending: asyncio.Lock
    escaped_at: float
    drafts: Drafts
    focused: Widget | None

    @property
    def conversation(self) -> Conversation:
        """The one on screen."""

    @property
    def slot(self) -> ModelSlot:
        """The model of the conversation on screen."""

    @property
    def view(self) -> ConversationView:
        """Its messages."""

    @property
    def prompt(self) -> Prompt:
        """Where the user types."""

    def poll(self) -> None:
        """Take and show the engine's figures now."""

    def withdraw(self, text: str) -> None:
        """A sentence for the user that holds no more."""

    def hint(self, id: str) -> str:
        """How to carry out a command: its first key, else how it is typed."""

    def get_selected_text(self) -> str | None:
        """What is selected with the mouse."""

    def clear_selection(self) -> None:
        """Nothing is."""

    def run_worker(self, work: Coroutine[Any, Any, None]) -> object:
        """Do something that takes time."""

    def run_line(self, line: str) -> None:
        """Carry out a typed command."""

    async def open_help(self) -> None:
        """Show all keys and commands, until that is closed."""

    def want(self, **wanted: Any) -> Layout:
        """Change what of the screen the user wants to see; what is shown then."""

    def swap_list(self) -> None:
        """Show or hide the list; on a narrow screen it takes the place of the conversation."""

    async def switch_to(self, conversation: Conversation) -> None:
        """Put a conversation on screen, with what was typed there."""

    def go_to_message(self, message_id: int) -> None:
        """Put the keys at a message, once it is drawn."""

"""Keys in order: each one is done with before the next is looked at, however fast they come.

A key passes the queues of the widgets it is for, and what it brings about passes them again. Without a wait,
a character typed next would be in the text before the Backspace in front of it. Characters for one text field
need none among themselves.
"""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual import events
from textual.message_pump import MessagePump
from textual.widgets import Input, TextArea

if TYPE_CHECKING:
    from textual.app import App

LONGEST_SECONDS = 1.0
"""A screen that is being closed, or that waits for a slow disk, takes in nothing: then the keys go on."""

EAGER_TURNS = 50
LATER_SECONDS = 0.002
"""A key takes a few turns of the event loop; what waits for a disk is looked at again that often."""


def is_text(event: events.Key) -> bool:
    """Whether a key types a character: also joiners, which show nothing by themselves."""
    character = event.character
    return (
        character is not None
        and "+" not in event.key
        and (character.isprintable() or unicodedata.category(character) in ("Cf", "Co", "Zs"))
    )


class TypeAhead:
    """What was typed and not looked at yet."""

    def __init__(
        self,
        app: App[Any],
        handle: Callable[[events.Event], Awaitable[None]],
        at_rest: Callable[[], Awaitable[None]],
    ) -> None:
        """handle: what the application does with an event. at_rest: waits until commands have acted."""
        self._app, self._handle, self._at_rest = app, handle, at_rest
        self._events: deque[events.Event] = deque()
        self._come = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._typed_into: object = None  # the field whose characters may not be in it yet

    @property
    def started(self) -> bool:
        """Whether what was typed is looked at."""
        return self._task is not None

    @property
    def idle(self) -> bool:
        """Whether everything that was typed is done."""
        return not self._events and not self._busy and self._typed_into is None

    def add(self, event: events.Event) -> None:
        """Take in an event of keyboard or mouse."""
        self._events.append(event)
        self._come.set()

    def start(self) -> None:
        """Begin to look at what was typed."""
        self._task = asyncio.create_task(self._run(), name="typeahead")

    def stop(self) -> None:
        """Look at nothing more."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            while not self._events:
                self._come.clear()
                await self._come.wait()
            self._busy = True
            try:
                await self._one(self._events.popleft())
                if not self._events and self._typed_into is not None:
                    await self._settle()
            except Exception as error:
                self._app._handle_exception(error)
            finally:
                self._busy = False

    async def _one(self, event: events.Event) -> None:
        focused = self._app.focused
        if isinstance(event, events.Key) and isinstance(focused, (Input, TextArea)):
            if is_text(event):
                await self._character(event, focused)
                return
            if await self._edit(event, focused):
                return
        if self._typed_into is not None:
            await self._settle()
        await self._handle(self._for_field(event))
        if not isinstance(event, events.MouseEvent) or isinstance(event, (events.MouseDown, events.MouseUp)):
            await self._settle()

    async def _edit(self, event: events.Key, field: Input | TextArea) -> bool:
        """Carry out a key of the field itself, such as Backspace, where its characters are.

        False: it is none.
        """
        own = field._bindings.key_to_bindings.get(event.key, ())
        if not own or event.key == "enter":
            return False
        await self._catch_up(field)
        if await self._app._check_bindings(event.key, priority=True):
            await self._settle()
            return True
        self._typed_into = field
        for binding in own:
            if await self._app.run_action(binding.action, field):
                return True
        return False

    async def _character(self, event: events.Key, field: Input | TextArea) -> None:
        """Type a character into the field that has the focus."""
        if event.is_printable:
            if self._typed_into not in (None, field):
                await self._settle()
            self._typed_into = field
            await self._handle(event)
            return
        await self._catch_up(field)
        self._typed_into = field
        assert event.character is not None, "it is a text"
        if isinstance(field, Input):
            field.insert_text_at_cursor(event.character)
        elif not field.read_only:
            field.replace(event.character, *field.selection, maintain_selection_offset=False)

    async def _catch_up(self, field: Input | TextArea) -> None:
        """Wait until all characters are in a field, so that it can be changed from here."""
        if self._typed_into is field:
            await self._pass([field], time.monotonic() + LONGEST_SECONDS)
        elif self._typed_into is not None:
            await self._settle()

    def _for_field(self, event: events.Event) -> events.Event:
        """A paste as the field that has the focus can hold it: all lines in one."""
        if isinstance(event, events.Paste) and isinstance(self._app.focused, Input):
            return events.Paste(" ".join(event.text.split("\n")))
        return event

    async def _settle(self) -> None:
        """Wait until what was typed is done: it has passed all queues, and a command has done its part."""
        self._typed_into = None
        deadline = time.monotonic() + LONGEST_SECONDS
        for _ in range(4):
            screen, focused = self._app.screen, self._app.focused
            await self._pass((focused or screen).ancestors_with_self, deadline)
            await self._at_rest()
            if (screen, focused) == (self._app.screen, self._app.focused):
                break
        await self._pass((self._app.focused or self._app.screen).ancestors_with_self, deadline)

    async def _pass(self, nodes: Sequence[MessagePump], deadline: float) -> None:
        """Wait until all of these have nothing more to do, so that no key is on its way between them."""
        turns = 0
        while True:
            await asyncio.sleep(0 if turns < EAGER_TURNS else LATER_SECONDS)
            if all(_waits(node) for node in nodes) or time.monotonic() > deadline:
                return
            turns += 1


def _waits(node: MessagePump) -> bool:
    """Whether a node waits for its next message, or takes none any more."""
    queue: Any = node._message_queue
    return not node.is_running or (queue.empty() and bool(queue.ready_event._waiters))

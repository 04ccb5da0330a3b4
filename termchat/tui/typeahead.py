"""Keys in order: what is typed before a command's key is taken in before the command is carried out."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from textual.widget import Widget

CLOSING_SECONDS = 1.0


async def taken_in(focused: Widget | None) -> None:
    """Wait until the keys before this one are through, which pass the queues of the widgets they are for.

    Called while the application handles a key, so that no further one is on its way.
    """
    if focused is None:
        return
    *nodes, _ = focused.ancestors_with_self  # the last one is the application
    for node in (focused, *nodes):  # a message that a key makes passes the focused widget once more
        passed = asyncio.Event()
        if node.call_later(passed.set):
            with suppress(TimeoutError):  # a screen that is being closed takes in nothing more
                await asyncio.wait_for(passed.wait(), CLOSING_SECONDS)

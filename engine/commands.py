"""What the client asks of the engine thread, through its queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .request import Request
from .types import EngineError


class Submit(NamedTuple):
    """Start a request on its prompt's token ids; or, with an error, end it at once."""

    request: Request
    prompt: list[int]
    error: EngineError | None = None


class Abort(NamedTuple):
    """End a request at the next step boundary; nothing happens if it has ended."""

    request: Request


class Call(NamedTuple):
    """Run a function on the engine thread between two steps."""

    function: Callable[[], None]


class Stop(NamedTuple):
    """End every request and the thread."""


Command = Submit | Abort | Call | Stop

"""What the client asks of the engine thread, through its queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .request import Request
from .types import EngineError


@dataclass(frozen=True, slots=True)
class Submit:
    """Start a request on its prompt's token ids; or, with an error, end it at once."""

    request: Request
    prompt: list[int]
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request at the next step boundary; nothing happens if it has ended."""

    request: Request


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function on the engine thread between two steps."""

    function: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stop:
    """End every request and the thread."""


Command = Submit | Abort | Call | Stop

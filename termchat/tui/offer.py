"""What the prompt offers: what is being typed, and what that may become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Completion:
    """Something to take. text: what stands in the prompt then; label and detail: what is shown."""

    text: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is being typed. start: the column where it begins; typed: what is there, up to the cursor;
    command: whose argument it is.
    """

    kind: Literal["command", "choice", "file"]
    start: int
    typed: str
    command: str = ""

    @property
    def end(self) -> int:
        """The column of the cursor."""
        return self.start + len(self.typed)

    @property
    def escaped(self) -> bool:
        """Whether blanks stand behind a backslash; what follows a command is one name."""
        return not self.command

    @property
    def path(self) -> str:
        """Of a file: the path that it stands for."""
        return re.sub(r"\\(.)", r"\1", self.typed) if self.escaped else self.typed

    @property
    def above(self) -> str:
        """Of a file: the folder in it, with the slash at its end."""
        return "".join(self.path.rpartition("/")[:2])


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be taken. row: the line that it is for; at: which of the items Enter takes, None: it sends."""

    unfinished: Unfinished | None = None
    row: int = 0
    items: Sequence[Completion] = ()
    at: int | None = None


class Completer(Protocol):
    """Looks at what stands before the cursor."""

    def unfinished(self, before: str, *, first: bool) -> Unfinished | None:
        """What a line up to the cursor ends with, if that can be completed. first: whether it is line one."""

    def completions(self, unfinished: Unfinished) -> list[Completion] | None:
        """What it may become, the best first. None: the folder has to be listed first."""

    async def list_folder(self, unfinished: Unfinished) -> None:
        """See what is in the folder of a file that is being typed."""

    def forget(self) -> None:
        """Look anew the next time."""

"""The program's edges, in one value that every command gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import Text
from ..given_file import read_given, read_some
from ..sanitize import one_line
from .output import Messages, Output
from .signals import Signals
from .stdin import Kind, kind_of

PATIENCE_SECONDS = 1.0
"""After this time a person is told what is waited for."""

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class Console:
    """Standard streams and signals. closed: the streams that were closed when the program started."""

    output: Output = field(default_factory=Output)
    messages: Messages = field(default_factory=Messages)
    signals: Signals = field(default_factory=Signals)
    closed: frozenset[int] = frozenset()
    stdin: int = 0

    @property
    def stdin_kind(self) -> Kind:
        """What standard input is."""
        return kind_of(self.stdin, self.closed)

    @property
    def has_input(self) -> bool:
        """Whether something other than a person is on standard input."""
        return self.stdin_kind not in ("terminal", "closed")

    @property
    def interactive(self) -> bool:
        """A person is there: input and output are a terminal."""
        return self.stdin_kind == "terminal" and self.output.is_terminal

    @property
    def can_ask(self) -> bool:
        """A person is there to answer questions, which stand on standard error."""
        return self.stdin_kind == "terminal" and self.messages.is_terminal

    def ask(self, question: str) -> bool:
        """A question on standard error that Enter or `y` answers with yes. Only where `can_ask`."""
        self.messages.text(f"{one_line(question)} [Y/n] ")
        answer = read_some(self.stdin, 1024)  # a terminal hands over one line
        if not answer:  # Ctrl-D shows nothing of its own
            self.messages.raw("\n")
        return bool(answer) and answer.strip().lower() in (b"", b"y", b"yes")

    @contextmanager
    def waiting(self, name: str | Path) -> Iterator[None]:
        """Tell a person, after a moment, that it is `name` that nobody has written yet: a pipe, say."""
        from threading import Timer

        message = f"waiting for what is written to {name}"
        timer = Timer(PATIENCE_SECONDS, self.messages.note, (message,))
        timer.daemon = True
        if self.messages.is_terminal:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def read_given(self, path: Path | str, largest: int) -> Text:
        """A text file that was named, or a pipe. As `given_file.read_given`."""
        with self.waiting(path):
            return read_given(path, largest)

    def print_json(self, value: Any) -> None:
        """One JSON document and a newline on standard output."""
        indent = 2 if self.output.is_terminal else None
        self.output.write(to_json(value, indent) + "\n", json=True)

    def print_table(self, rows: list[list[str]]) -> None:
        """Columns, the first row being their names; each cell is one line."""
        from ..cells import columns

        for line in columns([one_line(cell) for cell in row] for row in rows):
            self.output.write(line + "\n")


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: no NaN; characters as they are, lone surrogates aside, which no encoding has."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return text if text.isprintable() else _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

"""The program's edges, in one value that every command gets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .output import Messages, Output, one_line
from .signals import Signals
from .stdin import Kind, kind_of, read_some


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
    def interactive(self) -> bool:
        """A person is there: input and output are a terminal."""
        return self.stdin_kind == "terminal" and self.output.is_terminal

    def ask(self, question: str) -> bool:
        """A question on standard error that Enter or `y` answers with yes. Only where a person is."""
        self.messages.raw(f"{one_line(question)} [Y/n] ")
        answer = read_some(self.stdin, 1024)  # a terminal hands over one line
        return bool(answer) and answer.strip().lower() in (b"", b"y", b"yes")

    def print_json(self, value: Any) -> None:
        """One JSON document and a newline on standard output."""
        self.output.write(to_json(value, indent=2 if self.output.is_terminal else None) + "\n")

    def print_table(self, rows: list[list[str]]) -> None:
        """Columns, the first row being their names; names from files are made safe for a terminal."""
        safe = [[one_line(cell) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in safe) for column in range(len(safe[0]))]
        for row in safe:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.output.write(line.rstrip() + "\n")


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: characters as they are, no NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)

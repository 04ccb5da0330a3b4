"""Code blocks: highlighted piece by piece while they grow, as a whole when they are complete."""

from __future__ import annotations

from functools import lru_cache

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token, _TokenType  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

from ..cells import fit
from .leaf import Leaf
from .strips import Fragment, line_text
from .wrap import TAB_SIZE, cell_breaks

# What is highlighted in one go, in lines and characters. While the block is open the pieces are small, so the
# cost of a line stays the same; of a complete block the beginning is one large piece, which most blocks fit.
_SMALL = (16, 2_000)
_LARGE = (500, 40_000)
_BAR = "▏ "
_LONGEST_LINE = 2000  # characters; a longer line is shown plain

# Token types of Pygments and the style words for them; a type not listed takes its parent's.
_STYLES = {
    Token.Keyword: "keyword",
    Token.Keyword.Constant: "constant",
    Token.Keyword.Type: "type",
    Token.Name.Builtin: "builtin",
    Token.Name.Function: "function",
    Token.Name.Class: "type",
    Token.Name.Exception: "type",
    Token.Name.Decorator: "decorator",
    Token.Name.Tag: "keyword",
    Token.Name.Attribute: "function",
    Token.Name.Constant: "constant",
    Token.Literal.String: "string",
    Token.Literal.Number: "number",
    Token.Comment: "comment",
    Token.Operator: "operator",
    Token.Operator.Word: "keyword",
    Token.Generic.Inserted: "inserted",
    Token.Generic.Deleted: "deleted",
    Token.Generic.Heading: "keyword",
    Token.Generic.Prompt: "comment",
}


class Code(Leaf):
    """A code block. fence: its opening fence, None for an indented block. indent: columns before it."""

    def __init__(self, start: int, fence: str | None = None, info: str = "", indent: int = 0) -> None:
        super().__init__(start)
        self.fence = fence
        self.indent = indent
        self.language = info.split(maxsplit=1)[0] if info.strip() else ""
        self._final = False

    def _look(self) -> tuple[object, ...]:
        return *super()._look(), self.language

    @property
    def code(self) -> str:
        """The code as the model wrote it."""
        return "\n".join(self._code_lines())

    def copy(self, first: int, start: int, last: int, end: int | None) -> list[str]:
        """Return whole lines with their tabs; without the label."""
        head = len(self.plain) - len(self._code_lines())
        lines = super().copy(first, start, last, end)
        for index in range(first, last + 1):
            if lines[index - first] == self.plain[index] and index >= head:
                lines[index - first] = self.lines[index - head]
        return lines[max(0, head - first) :]

    def _code_lines(self) -> list[str]:
        lines = self.lines
        if self.fence is None:
            while lines and not lines[-1].strip():
                lines = lines[:-1]
        return lines

    def _place(self, width: int) -> None:
        super()._place(width)
        if self._room > len(_BAR):
            self._first_prefix = [*self._first_prefix, (_BAR, "block bar")]
            self._prefix = [*self._prefix, (_BAR, "block bar")]
            self._room -= len(_BAR)

    def _revise(self, final: bool) -> None:
        if final and not self._final:  # in one go the colours may come out differently
            self._final = True
            self._restart()

    def _grow(self, final: bool) -> None:
        if len(self.plain) == self.gap:
            label = fit(self.language or "code", self._room).rstrip()
            self._add_line([(label, "block label")], [0], fill="block")
            self.plain[-1] = ""
            self._keep()
        lines = [line.expandtabs(TAB_SIZE) for line in self._code_lines()[self._done :]]
        index, start = self._done, 0
        while start < len(lines):
            if len(lines[start]) > _LONGEST_LINE:
                self._add_growing_line(lines[start], cell_breaks, "block", "block")
                count, full = 1, True
            else:
                count, full = _piece(lines[start:], _LARGE if final and index == 0 else _SMALL)
                for line in _highlight(lines[start : start + count], self.language):
                    self._add_line(line, cell_breaks(line_text(line), self._room), fill="block")
            start += count
            index += count
            if full and index <= self.settled:
                self._done = index
                self._keep()


def _piece(lines: list[str], most: tuple[int, int]) -> tuple[int, bool]:
    """Return how many lines to highlight together, and whether lines to come can't belong to them."""
    most_lines, most_characters = most
    count = characters = 0
    for line in lines:
        if count == most_lines or characters >= most_characters or len(line) > _LONGEST_LINE:
            return count, True
        count += 1
        characters += len(line)
    return count, count == most_lines or characters >= most_characters


@lru_cache(maxsize=128)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _style(token: _TokenType) -> str:
    while token is not None and token not in _STYLES:
        token = token.parent
    return _STYLES.get(token, "")


def _highlight(lines: list[str], language: str) -> list[list[Fragment]]:
    """Return one list of fragments a line."""
    plain = [[(line, "block")] for line in lines]
    lexer = _lexer(language) if language else None
    if lexer is None:
        return plain
    highlighted: list[list[Fragment]] = [[]]
    for token, value in lexer.get_tokens("".join(f"{line}\n" for line in lines)):
        style = f"block {_style(token)}".strip()
        for index, part in enumerate(value.split("\n")):
            if index:
                highlighted.append([])
            if part:
                highlighted[-1].append((part, style))
    highlighted.pop()  # what follows the last newline
    # Not so if the lexer drops or changes characters.
    return highlighted if [line_text(line) for line in highlighted] == lines else plain

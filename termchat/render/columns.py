"""White space at the beginning of a line, counted in columns: tabs reach to the next multiple of 4."""

from __future__ import annotations


def indentation(text: str, column: int) -> int:
    """Return the columns of white space that `text`, standing at `column`, begins with (tab stops of 4)."""
    at = column
    for character in text:
        if character == " ":
            at += 1
        elif character == "\t":
            at += 4 - at % 4
        else:
            break
    return at - column


def dedent(text: str, column: int, columns: int) -> tuple[str, int]:
    """Remove up to `columns` columns of white space; what is left of a tab becomes spaces."""
    goal = column + columns
    index = 0
    while column < goal and index < len(text) and text[index] in " \t":
        column += 1 if text[index] == " " else 4 - column % 4
        index += 1
    return " " * (column - goal) + text[index:], min(column, goal)

"""Which parts of the main screen there is room for."""

from __future__ import annotations

from dataclasses import dataclass

PANEL_COLUMNS = 100
"""Below this width the panel is one line."""
LIST_COLUMNS = 70
"""Below this width the list is hidden too; it can take the place of the conversation."""
LOW_ROWS = 10
"""Below this height only conversation and prompt are left."""

SIDE_COLUMNS = 22, 36
"""The list is that wide at least and at most; in between it grows with the screen."""

PROMPT_ROWS = 3, 12
"""The prompt has that many at least and at most, its border included."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants to see. panel: full, mini or off. swapped: on a narrow screen, the list."""

    panel: str = "full"
    list: bool = True
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts that are shown. line: the panel in one line; frame: title and status line; side: the width of
    the list, in cells, where it is beside the conversation. prompt: most rows of the prompt; above: of
    what is said and offered above it.
    """

    panel: bool
    line: bool
    list: bool
    conversation: bool
    frame: bool
    narrow: bool
    side: int
    prompt: int
    above: int


def layout(width: int, height: int, wanted: Wanted) -> Layout:
    """What is shown of what the user wants on a screen of this size, in cells."""
    low, narrow = height < LOW_ROWS, width < LIST_COLUMNS
    panel = wanted.panel == "full" and width >= PANEL_COLUMNS
    return Layout(
        panel=panel,
        line=wanted.panel != "off" and not panel and not low,
        list=wanted.swapped if narrow else wanted.list,
        conversation=not (narrow and wanted.swapped),
        frame=not low,
        narrow=narrow,
        side=min(max(width // 5 + 2, SIDE_COLUMNS[0]), SIDE_COLUMNS[1]),
        prompt=min(max(height // 2 - 1, PROMPT_ROWS[0]), PROMPT_ROWS[1]),
        above=max(height * 2 // 5, 1),
    )

"""The KV cache as a map: who uses how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from ...sanitize import sanitize
from ...themes import PALETTE_SIZE
from .kept_rows import KeptRows


@dataclass(frozen=True, slots=True)
class Owner:
    """A conversation and its own blocks. key: says which one it is."""

    key: str
    name: str
    blocks: int


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of the kinds of blocks: each kind has its own, besides its colour."""

    own: str = "■"
    shared: str = "▨"
    cached: str = "▪"
    free: str = "·"


ASCII_SIGNS = Signs(own="#", shared="%", cached="+", free=".")


def allot(parts: Sequence[int], total: int, cells: int) -> list[int]:
    """Divide `cells` like `parts` of `total`; what is not zero gets a cell as long as there are enough."""
    total = max(total, sum(parts), 1)
    exact = [part * cells / total for part in parts]
    shares = [max(int(share), part > 0) for share, part in zip(exact, parts, strict=True)]
    while sum(shares) > cells:
        shares[shares.index(max(shares))] -= 1
    goal = min(cells, round(sum(exact)))
    for index in sorted(range(len(parts)), key=lambda index: shares[index] - exact[index]):
        if parts[index] and sum(shares) < goal:
            shares[index] += 1
    return shares


class KvMap(KeptRows, Widget):
    """One cell for some blocks: a conversation's own, shared by several, cached and free to be taken, free.

    A conversation keeps its colour of the palette while it is there. Cells are in order of owners, not of
    addresses: where a cell stands for dozens of blocks, all that several
    conversations use would lie in the same few cells.
    """

    COMPONENT_CLASSES = {
        *(f"kv-map--{index}" for index in range(PALETTE_SIZE)),
        "kv-map--shared",
        "kv-map--cached",
        "kv-map--free",
    }
    DEFAULT_CSS = "\n".join(
        [
            "KvMap { height: 3; width: 1fr; }",
            *(f"KvMap > .kv-map--{index} {{ color: $panel-kv-{index}; }}" for index in range(PALETTE_SIZE)),
            "KvMap > .kv-map--shared { color: $panel-kv-shared; }",
            "KvMap > .kv-map--cached { color: $panel-kv-cached; }",
            "KvMap > .kv-map--free { color: $chat-muted; }",
        ]
    )

    def __init__(self, *, signs: Signs | None = None, id: str | None = None) -> None:
        super().__init__(id=id)
        self._signs = signs or Signs()
        self._total = self._shared = self._cached = 0
        self._owners: tuple[Owner, ...] = ()
        self._colours: dict[str, int] = {}
        self._cells: list[tuple[str, str, str]] = []  # sign, component class, what it is

    def show(self, total: int, owners: Sequence[Owner], shared: int = 0, cached: int = 0) -> None:
        """Show how `total` blocks are used. shared: in use by several; cached: unused, but with content."""
        state = total, tuple(owners), shared, cached
        if state == (self._total, self._owners, self._shared, self._cached):
            return
        self._total, self._owners, self._shared, self._cached = state
        keys = {owner.key for owner in owners}
        self._colours = {key: colour for key, colour in self._colours.items() if key in keys}
        for owner in owners:
            if owner.key not in self._colours:
                used = list(self._colours.values())
                self._colours[owner.key] = min(
                    range(PALETTE_SIZE), key=lambda index: (used.count(index), index)
                )
        self._draw()
        self.refresh()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()
        self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Say whose blocks are under the mouse."""
        index = event.y * self.size.width + event.x
        name = (
            self._cells[index][2] if 0 <= event.x < self.size.width and 0 <= index < len(self._cells) else ""
        )
        self.tooltip = Content(name) if name else None

    def render_line(self, y: int) -> Strip:
        """Return one row of the map."""
        width = self.size.width
        segments = []
        for name, cells in groupby(self._cells[y * width : (y + 1) * width], key=lambda cell: cell[1]):
            style = self.part_style(f"kv-map--{name}")
            segments.append(Segment("".join(sign for sign, _, _ in cells), style))
        return Strip(segments).adjust_cell_length(width, self.part_style())

    def _draw(self) -> None:
        width, height = self.size
        self._cells = []
        if not self._total or width * height < 1:
            return
        parts = [
            *(
                (owner.blocks, self._signs.own, str(self._colours[owner.key]), sanitize(owner.name))
                for owner in self._owners
            ),
            (self._shared, self._signs.shared, "shared", "shared by several"),
            (self._cached, self._signs.cached, "cached", "cached, free to be taken"),
        ]
        counts = allot([part[0] for part in parts], self._total, width * height)
        for (blocks, sign, name, title), count in zip(parts, counts, strict=True):
            self._cells += [(sign, name, f"{title}: {blocks} blocks")] * count
        free = self._total - sum(part[0] for part in parts)
        self._cells += [(self._signs.free, "free", f"free: {free} blocks")] * (
            width * height - len(self._cells)
        )

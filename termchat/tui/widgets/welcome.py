"""What an empty conversation shows: how the engine is doing; at first, the offer of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from ...render.wrap import rows_of
from ...units import number
from ..engines.model_slot import ModelSlot
from ..glyphs import Glyphs
from .figures import MUTED, bar, cut

BAR_CELLS = 40
UNCHECKED = "neither models.toml nor its server gives a sha256, so it could not be checked"


class Welcome(Static):
    """A few lines in the middle of the screen; nothing has to be answered to begin typing."""

    DEFAULT_CSS = """
    Welcome { height: 1fr; padding: 0 4; content-align: center middle; text-align: center; }
    """

    def __init__(self, glyphs: Glyphs, hint: Callable[[str], str]) -> None:
        """hint: the key of a command, by its id."""
        super().__init__("", markup=False)
        self._glyphs = glyphs
        self._hint = hint
        self._drawn: tuple[object, ...] = ()

    def show(self, slot: ModelSlot, waiting: int) -> None:
        """waiting: prompts that are queued already."""
        lines = [Content.styled("termchat", "bold $primary"), Content("")]
        lines += {
            "absent": self._absent,
            "downloading": self._downloading,
            "failed": self._failed,
            "ready": self._ready,
            "unloaded": self._unloaded,
        }.get(slot.state, self._loading)(slot)
        if waiting and slot.state != "ready":
            lines += [
                Content(""),
                Content.styled("what you typed is sent as soon as the model is there", MUTED),
            ]
        content = Content("\n").join(lines)
        drawn = (content.plain, *content.spans)
        if drawn != self._drawn:
            self._drawn = drawn
            self.update(content, layout=False)

    def _loading(self, slot: ModelSlot) -> list[Content]:
        name = slot.model.name if slot.model is not None else "the model"
        return [Content(f"loading {name}"), Content(""), Content.styled("you can type meanwhile", MUTED)]

    def _unloaded(self, slot: ModelSlot) -> list[Content]:
        models = self._hint("model.choose")
        return [
            Content(f"{slot.title} is not loaded"),
            Content.styled("your message loads it", MUTED),
            Content(""),
            Content.styled(f"{models} models", MUTED),
        ]

    def _ready(self, slot: ModelSlot) -> list[Content]:
        assert slot.model is not None, "the engine is ready"
        hint, name = self._hint, slot.model.name
        width = max(1, self.content_size.width - len(" is ready"))
        seconds = f"loaded in {number(slot.load_seconds)} s" if slot.load_seconds is not None else ""
        parts = [
            f"{hint('chat.new')} new conversation",
            f"{hint('help')} keys",
            f"{hint('palette')} commands",
            f"{hint('model.choose')} models",
        ]
        return [
            Content(f"{cut(name, min(len(name), width))} is ready"),
            Content.styled(seconds, MUTED),
            *([Content.styled(UNCHECKED, "$warning")] if slot.unchecked else []),
            Content(""),
            *(Content.styled(row, MUTED) for row in self._rows(parts, "   ")),
        ]

    def _failed(self, slot: ModelSlot) -> list[Content]:
        models = self._hint("model.choose")
        return [
            Content.styled("the model cannot be used", "bold $error"),
            Content(slot.error),
            Content(""),
            Content.styled(f"{slot.remedy} ({models})" if slot.remedy else f"{models} models", MUTED),
        ]

    def _absent(self, slot: ModelSlot) -> list[Content]:
        entry, registry, models = slot.entry, slot.loader.registry, self._hint("model.choose")
        if entry is None or registry is None:
            return [Content(slot.error)]
        if not entry.is_fetched:
            return [Content(slot.error), Content(""), Content.styled(f"{models} other models", MUTED)]
        folder = registry.folder_of(entry)
        lines = [
            Content.assemble((entry.name, "bold"), " will answer, on this machine alone"),
            Content.styled(entry.description, MUTED),
            Content(""),
            Content(", ".join(entry.facts)),
            Content.styled(f"to {_short(folder)}", MUTED) if folder is not None else Content(""),
            Content(""),
        ]
        keys = [("enter", "looks it up" if entry.is_open else "download"), (models, "another model")]
        if slot.remedy:  # a download was tried
            lines += [Content.styled(slot.error, "$warning"), Content("")]
            keys = [("enter", "tries again"), (models, "a file you have"), ("/why", "details")]
        hints = [part for key, does in keys for part in ((key, "bold $accent"), f" {does}   ")]
        return [*lines, Content.assemble(*hints).rstrip()]

    def _downloading(self, slot: ModelSlot) -> list[Content]:
        from ...download import format_progress

        progress, name = slot.progress, slot.entry.name if slot.entry is not None else "the model"
        said = format_progress(progress) if progress is not None else "looking for the file"
        parts = [part.strip() for part in said.split("  ") if part.strip()]
        hints = ["you can type meanwhile", f"{self._hint('reply.stop')} stops"]
        return [
            Content.assemble("fetching ", (name, "bold")),
            Content(""),
            bar(slot.downloaded_share, min(BAR_CELLS, self.content_size.width), self._glyphs),
            *(Content.styled(row, MUTED) for row in self._rows(parts, "  ")),
            Content(""),
            *(Content.styled(row, MUTED) for row in self._rows(hints, "   ")),
        ]

    def _rows(self, parts: Iterable[str], gap: str) -> list[str]:
        return rows_of(parts, gap, self.content_size.width)


def _short(path: Path) -> str:
    home = str(Path.home())
    text = str(path)
    return "~" + text[len(home) :] if text.startswith(home + "/") else text

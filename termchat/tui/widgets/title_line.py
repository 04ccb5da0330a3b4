"""The line above the conversation: its title, its model, and how full the context is."""

from __future__ import annotations

from textual.content import Content

from ...cells import cell_len
from ...constraints import CONSTRAINTS, described
from ...units import count
from ..conversations.context_full import NEARLY_FULL
from ..conversations.conversation import Conversation
from ..glyphs import UNICODE, Glyphs
from .figures import MUTED, bar, cut
from .lines import Lines

_CELLS = 8


class TitleLine(Lines):
    """Title on the left; model, own settings and the context meter on the right."""

    DEFAULT_CSS = """
    TitleLine { height: 2; padding: 1 2 0 2; background: $background; color: $foreground; }
    """

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self._glyphs = glyphs

    def show(self, conversation: Conversation, model: str, context: int | None) -> None:
        """context: the model's most tokens. None is not known."""
        if (width := self.size.width) > 0:
            self.show_lines([self.line(conversation, model, context, width)])

    def line(self, conversation: Conversation, model: str, context: int | None, width: int) -> Content:
        """The line in so many cells."""
        right, room = self._right(conversation, model, context, width)
        if room < min(cell_len(conversation.title), width // 3):  # each reply says its model
            right, room = self._right(conversation, "", context, width)
        return Content.assemble((cut(conversation.title, room), "bold"), " ", right)

    def _right(
        self, conversation: Conversation, model: str, context: int | None, width: int
    ) -> tuple[Content, int]:
        """What stands on the right, and the cells that it leaves."""
        parts: list[Content] = []
        used = conversation.tokens_used
        form = described(conversation.sampling)
        if width < 50 and form:
            parts.append(Content.styled(f"{form.partition(' ')[0]}  ", MUTED))
        if width >= 50:
            settings = conversation.sampling.keys() - CONSTRAINTS.keys()
            own = [
                name
                for name, given in (
                    ("system", conversation.system),
                    ("own settings", settings),
                    (cut(form, min(len(form), 28, width // 4)), form),
                )
                if given
            ]
            words = [word for word in (cut(model, min(len(model), 28, width // 4)), *own) if word]
            if words:
                parts.append(Content.styled(f"{self._glyphs.between.join(words)}  ", MUTED))
        if context and used is not None:
            share = used / context
            style = "$warning" if share >= NEARLY_FULL else "$primary"
            if width >= 40:
                parts.append(bar(share, _CELLS, self._glyphs, style))
            sign = "!" if share >= NEARLY_FULL else " "
            parts.append(
                Content.styled(f"{sign}{count(used)}/{count(context)}", style if sign == "!" else MUTED)
            )
        right = Content.assemble(*parts)
        return right, max(0, width - right.cell_length - 1)

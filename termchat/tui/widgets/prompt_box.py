"""Where the user types."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class PromptBox(TextArea):
    """Grows with its text; Enter sends."""

    DEFAULT_CSS = """
    PromptBox { height: auto; max-height: 12; margin: 0 1; border: round $primary 40%; background: $background; }
    PromptBox:focus { border: round $primary; }
    """

    class Submitted(Message):
        """Enter was pressed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__("", soft_wrap=True, tab_behavior="focus", placeholder="Type a message")

    def load(self, text: str) -> None:
        """Replace the text."""
        self.text = text
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Submitted(self.text))
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
        else:
            await super()._on_key(event)

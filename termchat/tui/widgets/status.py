"""The line below the prompt: the keys that matter now."""

from __future__ import annotations

from textual.content import Content

from ...render.wrap import rows_of
from ..bridge import EngineBridge
from ..chat import Chat
from ..keymap import Keys
from .block import Block
from .figures import MUTED

ON_MESSAGE = {
    "message.copy": "copy",
    "message.edit": "edit",
    "message.again": "again",
    "message.code": "code",
    "message.branch": "branch",
}


class StatusLine(Block):
    """Keys and what they do."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 2; color: $chat-muted; }"

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys

    def show(self, chat: Chat, bridge: EngineBridge, *, on_message: bool) -> None:
        """on_message: the keys are at a message, not in the prompt."""
        rows = rows_of(self._parts(chat, bridge, on_message), "   ", self.size.width)
        self.show_lines([Content.styled(rows[0], MUTED)])

    def _parts(self, chat: Chat, bridge: EngineBridge, on_message: bool) -> list[str]:
        hint = self._keys.hint
        stop = hint("reply.stop")
        if chat.editing is not None and not on_message:
            return ["editing: enter sends a new version", f"{stop} leaves it"]
        if on_message:
            versions = f"{hint('message.left')} {hint('message.right')} versions"
            return [f"{stop} back", versions, *(f"{hint(id)} {word}" for id, word in ON_MESSAGE.items())]
        if chat.busy and bridge.state != "absent":
            return ["enter queue", f"{stop} stop", f"{hint('chat.new')} new chat"]
        enter = "download" if bridge.state == "absent" else "send"
        return [f"enter {enter}", "^J new line", f"{hint('help')} keys", f"{hint('palette')} commands"]

"""Everything the user can do, as one list: for slash commands, palette, keys and help."""

from .chats import CHATS
from .messages import MESSAGES
from .registry import Command
from .replies import REPLIES
from .typing import TYPING
from .view import VIEW

COMMANDS: tuple[Command, ...] = (*REPLIES, *CHATS, *MESSAGES, *TYPING, *VIEW)

__all__ = ["COMMANDS", "Command"]

"""Everything the user can do, as one list: for slash commands, palette, keys and help."""

from ..command import Command
from .conversations import CONVERSATIONS
from .files import FILES
from .messages import MESSAGES
from .models import MODELS
from .prompt import TYPING
from .replies import REPLIES
from .settings import SETTINGS
from .stopping import STOPPING
from .view import VIEW

COMMANDS: tuple[Command, ...] = (
    *STOPPING,
    *REPLIES,
    *SETTINGS,
    *MODELS,
    *CONVERSATIONS,
    *FILES,
    *MESSAGES,
    *TYPING,
    *VIEW,
)

__all__ = ["COMMANDS"]

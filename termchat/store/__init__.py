"""The conversation store: SQLite, safe against crashes, other processes and newer versions of itself."""

from ..messages import Conversation, Role, Status, StoredMessage, prompt_of
from .conversations import ConversationBusyError, ConversationIdError, NotFoundError, checked_id
from .database import StoreBusyError, StoreError, StoreReadOnlyError, StoreUnavailableError
from .drafts import Draft, save_draft, take_drafts
from .export import Format, conversation_as_dict, export, export_file, import_json
from .replies import ReplyWriter
from .search import Hit, search
from .store import BegunTurn, Store

__all__ = [
    "BegunTurn",
    "Conversation",
    "ConversationBusyError",
    "ConversationIdError",
    "Draft",
    "Format",
    "Hit",
    "NotFoundError",
    "ReplyWriter",
    "Role",
    "Status",
    "Store",
    "StoreBusyError",
    "StoreError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "StoredMessage",
    "checked_id",
    "conversation_as_dict",
    "export",
    "export_file",
    "import_json",
    "prompt_of",
    "save_draft",
    "search",
    "take_drafts",
]

"""The conversation store: SQLite, safe against crashes, other processes and newer versions of itself."""

from .conversations import ConversationTable, checked_id
from .database import Database
from .drafts import Draft, leave_draft, save_draft, take_draft, take_drafts
from .errors import (
    ConversationBusyError,
    ConversationIdError,
    NotFoundError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from .export import (
    Format,
    conversation_as_dict,
    document_of,
    export,
    export_file,
    import_parsed,
    parse_export,
)
from .reply_writer import ReplyWriter
from .search import Hit, search
from .store import BegunTurn, Store

__all__ = [
    "BegunTurn",
    "ConversationBusyError",
    "ConversationIdError",
    "ConversationTable",
    "Database",
    "Draft",
    "Format",
    "Hit",
    "NotFoundError",
    "ReplyWriter",
    "Store",
    "StoreBusyError",
    "StoreDamagedError",
    "StoreError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "checked_id",
    "conversation_as_dict",
    "document_of",
    "export",
    "export_file",
    "import_parsed",
    "leave_draft",
    "parse_export",
    "save_draft",
    "search",
    "take_draft",
    "take_drafts",
]

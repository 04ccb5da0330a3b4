"""What was typed and not sent, from one run to the next: a small file, written when the program ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..files import private_folder, write_private

if TYPE_CHECKING:
    from .chat import Chat

log = logging.getLogger(__name__)

LARGEST = 16 << 20
"""Bytes of a file that is read."""
NEW = ""
"""In place of the id of a conversation that has no message yet."""


def restore(file: Path, chats: Iterable[Chat]) -> None:
    """Put the texts of a file where they were typed. One that cannot be read, or is another's, holds none."""
    try:
        with file.open("rb") as handle:
            found = json.loads(handle.read(LARGEST))
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s is ignored: %s", file, error)
        return
    for chat in chats if isinstance(found, dict) else ():
        text = found.get(chat.id or NEW)
        if isinstance(text, str) and not chat.draft:
            chat.draft = text


def keep(file: Path, chats: Iterable[Chat]) -> None:
    """Write the texts to a file. What cannot be written is only noted in the log."""
    texts: dict[str, str] = {}
    for chat in chats:
        if chat.draft.strip():
            before = [texts[NEW]] if chat.id is None and NEW in texts else []
            texts[chat.id or NEW] = "\n\n".join([*before, chat.draft])
    try:
        if texts:
            private_folder(file.parent)
            write_private(file, json.dumps(texts, indent=1))
        else:
            file.unlink(missing_ok=True)
    except (UserError, OSError) as error:
        log.warning("what was typed is not kept: %s", error)

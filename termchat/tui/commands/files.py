"""Commands that take conversations to files and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...files import TextError, expanded, read_text
from ...store import StoreError, document_of, export, export_file, import_parsed, parse_export
from ...store.export import LARGEST_IMPORT
from ..background import in_background
from ..command import Command, CommandError
from ..screens.dialogs import AskLine, Choose
from ..ui import Ui

Format = Literal["md", "json", "text"]

FORMATS: dict[str, Format] = {"md": "md", "json": "json", "text": "text", "txt": "text"}
SUFFIXES: dict[Format, str] = {"md": "md", "json": "json", "text": "txt"}


async def save(ui: Ui, argument: str) -> None:
    """Write the conversation to a file: `[md|json|text] [FILE]`."""
    conversation = ui.conversation
    if not conversation.messages:
        raise CommandError("this conversation has no message yet, so there is nothing to export")
    form, name = _asked(argument, ui.app.folder)
    usual = f"{_file_name(conversation.title)}.{SUFFIXES[form]}"
    path = ui.app.folder / expanded(name or usual)
    if os.path.isdir(path):
        path /= usual
    replace = os.path.exists(path)
    if replace:
        answer = await ui.app.push_screen_wait(Choose("The file exists", str(path), ["replace it", "cancel"]))
        if answer != 0:
            return
    if (id := conversation.id) is None or conversation.held:  # not all of it is stored yet
        messages = list((conversation.tree or {}).values()) if form == "json" else conversation.messages
        document = document_of([(conversation.row, messages)], form)
    else:
        document = await ui.app.store.call(lambda store: export(store, [id], form))

    def write() -> None:
        if not replace and os.path.exists(path):
            raise CommandError(f"{path} was made meanwhile; it is not replaced unasked")
        export_file(path, document)

    await in_background(write)
    ui.notify_user(f"written: {path}")


async def load(ui: Ui, argument: str) -> None:
    """Add the conversations of an exported JSON file."""
    name: str | None = argument or None
    if name is None:
        name = await ui.app.push_screen_wait(AskLine("Import", "An exported JSON file."))
    if not name:
        return
    path = ui.app.folder / expanded(_unquoted(name))

    def read() -> Mapping[str, Any]:
        try:
            if not os.path.isfile(path) and os.path.exists(path):
                raise CommandError(f"cannot read {path}: it is no regular file")
            return parse_export(read_text(path, LARGEST_IMPORT).text)
        except TextError as error:
            raise CommandError(f"{path} is not a text file: it {error}") from error
        except (OSError, ValueError) as error:
            raise CommandError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        except StoreError as error:
            raise CommandError(f"cannot import {path}: {error}") from error

    content = await in_background(read)
    added = await ui.app.conversations.add_all(lambda store: import_parsed(store, content))
    if added:
        await ui.switch_to(added[0])
    ui.notify_user(f"conversations added: {len(added)}")


def _asked(argument: str, folder: Path) -> tuple[Format, str]:
    """Format and file name; the name's ending says the format if no word does. "" names no file."""
    first, _, rest = argument.partition(" ")
    if first.lower() in FORMATS:
        return FORMATS[first.lower()], _unquoted(rest.strip())
    name = _unquoted(argument)
    ending = Path(name).suffix[1:]
    if not name:
        return "md", ""
    if ending.lower() in FORMATS:
        return FORMATS[ending.lower()], name
    if os.path.isdir(folder / expanded(name)):
        return "md", name
    raise CommandError(
        f"there is no format {ending or name!r}; it is md, json or text: "
        "the ending of the file's name, or a word before the name"
    )


def _unquoted(name: str) -> str:
    """A name without the quotes that shells need around blanks."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'" else name


def _file_name(text: str) -> str:
    """A title as a file name."""
    kept = "".join(char if char.isalnum() or char in "-_." else "-" for char in text.lower())
    return "-".join(part for part in kept.split("-") if part)[:60].strip(".") or "conversation"


FILES = (
    Command("chat.export", save, "write to a file", "Conversations", "export", "[md|json|text] [FILE]"),
    Command("chat.import", load, "add an exported file", "Conversations", "import", "[FILE]"),
)

"""Commands that take conversations to files and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...files import TextError, read_text
from ...store import Store, export, export_file, import_json
from ..command import Command, CommandError
from ..screens.dialogs import AskLine, Choose

if TYPE_CHECKING:
    from ..screens.main import MainScreen

Format = Literal["md", "json", "text"]

FORMATS: dict[str, Format] = {"md": "md", "json": "json", "text": "text", "txt": "text"}
LARGEST_IMPORT = 1 << 30
SUFFIXES: dict[Format, str] = {"md": "md", "json": "json", "text": "txt"}


async def save(ui: MainScreen, argument: str) -> None:
    """Write the conversation to a file: `[md|json|text] [FILE]`."""
    chat = ui.chat
    if (id := chat.id) is None:
        raise CommandError("this conversation has no message yet, so there is nothing to export")
    form, name = _asked(argument)
    path = ui.app.folder / Path(name or f"{_file_name(chat.title)}.{SUFFIXES[form]}").expanduser()
    if path.exists():
        answer = await ui.app.push_screen_wait(Choose("The file exists", str(path), ["replace it", "cancel"]))
        if answer != 0:
            return

    def write(store: Store) -> None:
        export_file(path, export(store, [id], form))

    await ui.app.history.call(write)
    ui.notify_user(f"written: {path}")


async def load(ui: MainScreen, argument: str) -> None:
    """Add the conversations of an exported JSON file."""
    name: str | None = argument or None
    if name is None:
        name = await ui.app.push_screen_wait(AskLine("Import", "An exported JSON file."))
    if not name:
        return
    path = ui.app.folder / Path(name).expanduser()

    def read(store: Store) -> list[str]:
        try:
            text = read_text(path, LARGEST_IMPORT).text
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
        except TextError as error:
            raise CommandError(f"{path} is not a text file: it {error}") from error
        return [added.id for added in import_json(store, text)]

    ids = await ui.app.history.call(read)
    added = [await ui.app.chats.add(lambda store, id=id: store.conversation(id)) for id in ids]  # type: ignore[misc]
    if added:
        await ui.switch_to(added[-1])
    ui.notify_user(f"conversations added: {len(added)}")


def _asked(argument: str) -> tuple[Format, str]:
    """Format and file name; the name's ending says the format if no word does. "" names no file."""
    first, _, rest = argument.partition(" ")
    if first in FORMATS:
        return FORMATS[first], rest.strip()
    return FORMATS.get(Path(argument).suffix[1:], "md"), argument


def _file_name(text: str) -> str:
    """A title as a file name."""
    kept = "".join(char if char.isalnum() or char in "-_." else "-" for char in text.lower())
    return "-".join(part for part in kept.split("-") if part)[:60].strip(".") or "conversation"


FILES = (
    Command("chat.export", save, "write to a file", "Conversations", "export", "[md|json|text] [FILE]"),
    Command("chat.import", load, "add an exported file", "Conversations", "import", "[FILE]"),
)

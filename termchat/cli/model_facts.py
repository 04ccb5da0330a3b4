"""What `termchat models` says of a model: a registered one, one of the Hub, or another program's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import units

if TYPE_CHECKING:
    from ..elsewhere.found import Found
    from ..registry import Registry
    from ..resolved_model import ModelStatus, ResolvedModel

OWN = "termchat"
LONGEST_REASON = 100


def listed(registry: Registry) -> Iterator[dict[str, Any]]:
    """All models that are known or here, those of other programs too, by their headers alone.

    Each has `from` (who brought it, or keeps it), and if it is here `architecture`, `format`,
    `context_length` and `problem`: why it cannot be loaded, null where nothing is known against it.
    """
    from ..elsewhere.everywhere import everywhere

    seen: set[str] = set()
    for status in registry.list_models():
        if status.path is not None:
            seen.add(os.path.realpath(status.path))
        yield _over(status.as_dict(), declared(status.path))
    for found in everywhere():
        if os.path.realpath(found.path) not in seen:
            yield of_found(found)


def of_found(found: Found, *, thoroughly: bool = False) -> dict[str, Any]:
    """What is known of another program's model."""
    facts = {
        "name": found.name,
        "path": str(found.path),
        "size": found.size,
        "licence": found.licence,
        "from": found.program,
    }
    if found.problem:
        return {**facts, **_unknown(thoroughly), "problem": found.problem}
    told = declared(found.path, thoroughly=thoroughly)
    return {**facts, **told, "licence": found.licence or told.get("licence") or ""}


def declared(path: Path | None, *, thoroughly: bool = False) -> dict[str, Any]:
    """What the files at a path declare."""
    if path is None:
        return _unknown(thoroughly)
    from engine import describe_model

    found = describe_model(path, thoroughly=thoroughly)
    facts: dict[str, Any] = {
        "architecture": found.architecture or None,
        "format": found.quantization or None,
        "context_length": found.context_length,
        "problem": _without(path, found.problem) or None,
    }
    if thoroughly:
        facts["parameters"] = found.parameters
        facts["chat_template"] = found.has_template
        facts["thinking"] = found.thinks
        facts["notes"] = list(found.notes) if found.notes is not None else None
    return facts | ({"licence": found.licence} if found.licence else {})


def _without(path: Path, problem: str) -> str:
    """A sentence on a file without its path, which stands beside it."""
    rest = problem.removeprefix(f"{path} ")
    return f"it {rest}" if rest != problem else problem.removeprefix(f"{path}: ")


def rows(facts: Mapping[str, Any]) -> list[list[str]]:
    """What `models show` says, a line each."""
    yes = {True: "yes", False: "no", None: ""}
    digests = facts.get("sha256") or ()
    words = {
        **facts,
        "state": state(facts),
        "size": units.size(facts["size"]) if facts["size"] is not None else "",
        "parameters": f"{facts['parameters']:,}" if facts["parameters"] else "",
        "context_length": f"{facts['context_length']:,}" if facts["context_length"] else "",
        "chat_template": "no (--template gives it one)"
        if facts["chat_template"] is False
        else yes[facts["chat_template"]],
        "thinking": yes[facts["thinking"]],
        "notes": "; ".join(facts["notes"] or ()),
        "sampling": _pairs(facts.get("sampling", {})),
        "template_vars": _pairs(facts.get("template_vars", {})),
        "sources": "; ".join(facts.get("sources", ())),
        "sha256": digests if isinstance(digests, str) else ", ".join(digests),
    }
    return [[f"{key}:", str(words[key])] for key in _ORDER if words.get(key)]


_ORDER = (
    "name",
    "description",
    "state",
    "from",
    "path",
    "size",
    "licence",
    "architecture",
    "format",
    "parameters",
    "context_length",
    "chat_template",
    "thinking",
    "notes",
    "sampling",
    "template_vars",
    "template",
    "quantization",
    "draft",
    "sources",
    "sha256",
)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _unknown(thoroughly: bool) -> dict[str, Any]:
    more = ("parameters", "chat_template", "thinking", "notes") if thoroughly else ()
    return dict.fromkeys(("architecture", "format", "context_length", "problem", *more))


def shown(registry: Registry, name: str) -> dict[str, Any]:
    """All that is known of a model, whatever --model takes. UnknownModelError."""
    if (model := registry.without_entry(name)) is not None:
        return of_found(_found(model), thoroughly=True)
    status = registry.show(name)
    return _over(status.as_dict(), declared(status.path, thoroughly=True))


def _over(facts: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """What the registry knows with what the files say; they are asked last for the licence."""
    context = told["context_length"] or facts["context_length"]
    licence = facts["licence"] or told.get("licence") or ""
    return {**facts, **told, "context_length": context, "licence": licence, "from": OWN}


def _found(model: ResolvedModel) -> Found:
    """A model without an entry, with what its program has noted of it."""
    from ..elsewhere.everywhere import everywhere
    from ..elsewhere.found import Found
    from ..files import size_of

    if model.elsewhere:
        for found in everywhere():
            if found.name == model.name:
                return found
    size = size_of(model.path) if os.path.isfile(model.path) else None
    return Found(model.name, "", model.path, size)


def columns(facts: Mapping[str, Any]) -> list[str]:
    """A row of `models list --all`."""
    context = f"{facts['context_length']:,}" if facts["context_length"] else ""
    return [
        facts["name"],
        facts["from"],
        units.size(facts["size"]) if facts["size"] is not None else "",
        facts["format"] or "",
        context,
        state(facts),
        facts["path"] or "",
    ]


def state(facts: Mapping[str, Any]) -> str:
    """Whether a model is here and can be loaded, in a few words."""
    if facts["problem"]:
        reason = facts["problem"].partition(" (")[0]
        return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"
    if facts["path"] is not None:
        return "here (default)" if facts.get("default") else "here"
    partial = f"{units.size(facts['partial'])} downloaded" if facts.get("partial") else ""
    return " ".join(part for part in (partial, "(default)" if facts.get("default") else "") if part)


def plain(status: ModelStatus) -> list[str]:
    """A row of `models list`."""
    facts = status.as_dict()
    size = units.size(facts["size"]) if facts["size"] is not None else ""
    said = state({**facts, "problem": None})
    return [facts["name"], size, facts["licence"], said, facts["description"]]

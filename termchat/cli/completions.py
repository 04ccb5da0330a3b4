"""What a shell completes values with: models, files, conversations, and what few values an option has."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import click


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of models that are known or here, other programs' too, or files, for the shell."""
    from click.shell_completion import CompletionItem

    from ..elsewhere.everywhere import everywhere
    from ..paths import Paths
    from ..registry import Registry

    registry = Registry.load(Paths.default())
    known = [*registry.entries, *registry.of_the_hub()]
    if incomplete:  # else there are too many
        known += [found.name for found in everywhere() if not found.problem]
    # Files of other programs can be named anyhow; a shell takes one line a name, in valid UTF-8.
    names = [name for name in dict.fromkeys(known) if name.startswith(incomplete) and name.isprintable()]
    return [CompletionItem(name) for name in names] or complete_file(ctx, param, incomplete)


def complete_engine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The values of an engine option that has few of them, or names of templates and files, for the shell."""
    from typing import get_args, get_type_hints

    from click.shell_completion import CompletionItem

    from engine import EngineConfig, template_names

    template = param.name == "template"
    values = template_names() if template else get_args(get_type_hints(EngineConfig)[param.name])
    found = [CompletionItem(value) for value in values if value.startswith(incomplete)]
    return found or (complete_file(ctx, param, incomplete) if template else [])


def complete_draft(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """What can guess: the words for it, and models, for the shell."""
    from click.shell_completion import CompletionItem

    from engine import DRAFT_WORDS

    words = [CompletionItem(word) for word in DRAFT_WORDS if word.startswith(incomplete)]
    return [*words, *complete_model(ctx, param, incomplete)]


def complete_conversation(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Ids of conversations, with their titles, for the shell."""
    from click.shell_completion import CompletionItem

    from ..paths import Paths
    from ..sanitize import one_line
    from ..store import Store

    database = Paths.default().database
    if not os.path.exists(database):  # which a key that is pressed must not create
        return []
    with closing(Store(database)) as store:
        found = store.list_conversations(limit=200)
    return [
        CompletionItem(conversation.id, help=one_line(conversation.title))
        for conversation in found
        if conversation.id.startswith(incomplete)
    ]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Files, for the shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_constraint(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Schemas by name, and files, for the shell."""
    from click.shell_completion import CompletionItem

    from ..constraints import names

    known = names() if param.name == "schema" else []
    found = [CompletionItem(name) for name in known if name.startswith(incomplete)]
    return found or ([] if param.name == "regex" else complete_file(ctx, param, incomplete))

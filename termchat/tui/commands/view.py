"""Commands for what is shown, and for leaving."""

from __future__ import annotations

import json
from functools import partial
from typing import Literal

from textual.content import Content

from ...config import set_value
from ...errors import did_you_mean
from ..background import in_background
from ..command import Command, CommandError
from ..conversations.doubts import DOUBTFUL, UNLIKELY
from ..screens.picker import Item, Picker, matching
from ..ui import Ui

PANELS = ("full", "mini", "off")


async def show_list(ui: Ui, argument: str) -> None:
    """Show or hide the list of conversations."""
    ui.swap_list()


async def panel(ui: Ui, argument: str) -> None:
    """The engine panel: full, one line, or off."""
    if argument and argument not in PANELS:
        raise CommandError(f"/panel takes {', '.join(PANELS)}, not {argument[:40]!r}")
    ui.want(panel=argument or PANELS[(PANELS.index(ui.wanted.panel) + 1) % len(PANELS)])


async def thinking(ui: Ui, argument: str) -> None:
    """Fold or unfold all thinking."""
    ui.view.fold_all(ui.view.thinking_folded is False)


async def confidence(ui: Ui, argument: str) -> None:
    """Mark where the model was in doubt, or do not."""
    if argument not in ("", "on", "off"):
        raise CommandError(f"/confidence takes on or off, not {argument[:40]!r}")
    on = not ui.view.confidence if not argument else argument == "on"
    ui.app.turns.answering.confidence = on
    ui.view.show_confidence(on)
    ui.notify_user(
        f"replies from now on: tokens below {DOUBTFUL:.0%} are underlined, below {UNLIKELY:.0%} bold as well"
        if on
        else "doubtful tokens are marked no more"
    )


async def scroll(way: Literal["up", "down", "top", "end"], ui: Ui, argument: str) -> None:
    """Scroll the conversation by a screen, or to its beginning or end."""
    transcript = ui.view.transcript
    if way == "end":
        transcript.follow()
    elif way == "top":
        transcript.scroll_home(animate=False)
    elif way == "up":
        transcript.scroll_page_up(animate=False)
    else:
        transcript.scroll_page_down(animate=False)


async def theme(ui: Ui, argument: str) -> None:
    """Choose a theme, seeing it at once."""
    app, names = ui.app, ui.app.theme_names
    before = app.theme
    name: str | None = argument or None
    if name is None:
        now = Content.styled("  now", "$chat-muted")
        items = [Item(Content(each) + now if each == before else Content(each), each) for each in names]

        async def search(query: str) -> list[Item]:
            return matching(items, query)

        def preview(each: str | None) -> None:
            app.theme = each or before

        picker = Picker(
            "Themes",
            search,
            selected=before,
            highlighted=preview,
            hint="enter keep   esc back",
            aside=True,  # a theme is seen on what is there
        )
        name = await app.push_screen_wait(picker)
    if name is None:
        app.theme = before
        return
    if name not in names:
        raise CommandError(f"there is no theme {name[:40]!r}; {did_you_mean(name, names, '{}')}")
    app.theme = name
    file = ui.app.config.file
    await in_background(lambda: set_value(file, "ui.theme", name))


async def stats(ui: Ui, argument: str) -> None:
    """Copy all figures as JSON, as they are now."""
    ui.poll()
    figures = ui.app.monitor.stats
    if figures is None:
        raise CommandError("the engine is not loaded yet")
    ui.app.copy_to_clipboard(json.dumps(figures.as_dict(), indent=2))
    ui.notify_user("the figures are copied as JSON")


async def detail(ui: Ui, argument: str) -> None:
    """The engine on a whole screen."""
    ui.app.open_stats()


async def help(ui: Ui, argument: str) -> None:
    """All keys and commands."""
    await ui.open_help()


async def palette(ui: Ui, argument: str) -> None:
    """All commands, to search."""
    ui.app.action_command_palette()


async def redraw(ui: Ui, argument: str) -> None:
    """Draw the screen anew, for when something else has written on it."""
    ui.app.redraw()


async def leave(ui: Ui, argument: str) -> None:
    """Leave; replies that run are stopped and kept."""
    await ui.app.action_quit()


VIEW = (
    Command("list", show_list, "show or hide the list", "View", key="ctrl+b,f11"),
    Command(
        "panel", panel, "engine panel: full, one line, off", "View", "panel", "[full|mini|off]", "ctrl+g"
    ),
    Command("stats.detail", detail, "the engine on a whole screen", "View", "kv", key="f3"),
    Command("stats.copy", stats, "copy all figures as JSON", "View", "stats"),
    Command("scroll.page_up", partial(scroll, "up"), "scroll up", "View", key="pageup", palette=False),
    Command(
        "scroll.page_down", partial(scroll, "down"), "scroll down", "View", key="pagedown", palette=False
    ),
    Command("scroll.top", partial(scroll, "top"), "to the first message", "View", key="ctrl+home"),
    Command("scroll.end", partial(scroll, "end"), "to the newest text", "View", key="end,ctrl+end"),
    Command("thinking", thinking, "fold or unfold all thinking", "View", "thinking", key="ctrl+t"),
    Command("confidence", confidence, "mark where the model is in doubt", "View", "confidence", "[on|off]"),
    Command(
        "theme",
        theme,
        "choose a theme",
        "View",
        "theme",
        "[NAME]",
        named=lambda ui: ui.app.theme_names,
    ),
    Command("redraw", redraw, "draw the screen anew", "View", "redraw", key="ctrl+l"),
    Command("palette", palette, "all commands, to search", "View", key="ctrl+p", palette=False),
    Command("help", help, "keys and commands", "View", "help", key="f1,alt+h"),
    Command("quit", leave, "leave", "View", "quit", key="ctrl+q"),
)

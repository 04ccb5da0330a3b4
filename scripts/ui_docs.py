"""Writes what the documentation shows of the terminal interface: the table of docs/ui.md, and the pictures.

python scripts/ui_docs.py            # the table of keys and commands, from the registry of commands
python scripts/ui_docs.py pictures   # the real program with the default model, as docs/*.svg
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from termchat.config import Config
from termchat.paths import Paths
from termchat.tui.app import TermchatApp
from termchat.tui.commands import COMMANDS
from termchat.tui.conversations.conversation import Conversation
from termchat.tui.keymap import shown
from termchat.tui.start import Options

DOCS = Path(__file__).resolve().parent.parent / "docs"
CELL, SPACE = 12.2, "&#160;"  # of Textual's pictures: width of a cell, and how a space is written
BEGIN, END = "<!-- commands -->\n", "<!-- end -->\n"


def table() -> str:
    """All commands as Markdown, one table a group."""
    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += [f"**{group}**", "", "| keys | typed | does | id |", "|---|---|---|---|"]
        for command in COMMANDS:
            if command.group == group:
                usage = f"`{command.usage}`".replace("|", "\\|") if command.usage else ""
                keys = f"`{shown(command.key)}`" if command.key else ""
                lines.append(f"| {keys} | {usage} | {command.title} | `{command.id}` |")
        lines.append("")
    return "\n".join(lines)


def write_table() -> None:
    """Put the table into docs/ui.md."""
    page = DOCS / "ui.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table()}{END}{rest.split(END)[1]}", encoding="utf-8")


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


def _go_on(app: TermchatApp) -> None:
    """Let replies from now on be long: the picture is to show them while they stream."""
    slot = app.engines.default
    usual = slot.sampling
    slot.sampling = lambda own: replace(usual(own), min_tokens=3000, max_tokens=4000)  # type: ignore[method-assign]


async def _streams(chat: Conversation, tokens: int) -> None:
    """Until its reply has so many tokens and goes on."""
    await _until(lambda: any(reply.tokens > tokens for reply in chat.live.values()))


async def _code(app: TermchatApp) -> None:
    """A reply that is over, and the engine's peak measured, which is done when nothing runs."""
    chat = app._main.conversation
    app.turns.submit(chat, "Write a Python function that adds two numbers, with an example.")
    await _until(lambda: chat.messages[1:] and not chat.busy)
    await _until(lambda: (figures := app.monitor.stats) is not None and figures.bandwidth_share)
    await asyncio.sleep(0.5)


async def _two_stream(app: TermchatApp) -> None:
    await _code(app)
    _go_on(app)
    chats, turns, main = app.conversations, app.turns, app._main
    for text, tokens in (
        ("Tell me a long story about a lighthouse.", 40),
        ("Explain step by step how bread is made.", 100),
    ):
        await main.switch_to(chats.new())
        turns.submit(main.conversation, text)
        await _streams(main.conversation, tokens)
    turns.submit(main.conversation, "And now the end.")
    await asyncio.sleep(0.5)


async def _engine(app: TermchatApp) -> None:
    await _two_stream(app)
    for text in ("Why is the sky blue?", "Write a poem about the sea.", "Which rivers flow into the sea?"):
        await asyncio.sleep(4)
        app.turns.submit(app.conversations.new(), text)
    await asyncio.sleep(4)
    app.turns.stop(app.conversations.all[0])
    app.open_stats()
    await asyncio.sleep(3)


def _placed(svg: str) -> str:
    """The picture without spaces at the beginning of a text, which some viewers leave out."""

    def moved(text: re.Match[str]) -> str:
        before, x, after, spaces = text.groups()
        return f'{before}x="{float(x) + CELL * len(spaces) / len(SPACE):.1f}"{after}>'

    return re.sub(rf'(<text [^>]*?)x="([\d.]+)"([^>]*)>((?:{SPACE})+)(?!<)', moved, svg)


PICTURES: dict[str, tuple[tuple[int, int], str, Callable[[TermchatApp], Awaitable[None]]]] = {
    "screenshot": ((120, 36), "dusk", _two_stream),
    "ui-engine": ((120, 36), "moss", _engine),
    "ui-narrow": ((66, 24), "paper", _code),
}


async def picture(name: str) -> None:
    """Run the program with conversations of its own, and save what is on its screen."""
    size, theme, scene = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(*(Path(folder) / part for part in ("config", "data", "cache", "state")))
        paths = replace(paths, cache=Paths.default().cache)
        options = Options(download=True, sampling={"max_tokens": 300, "seed": 7})
        app = TermchatApp(paths, Config.load(paths.config_file), options)
        async with app.run_test(size=size):
            app.theme = theme
            await _until(lambda: app.engines.default.state == "ready")
            await scene(app)
            svg = app.export_screenshot(title="termchat")
            svg = _placed(re.sub(r"[ \t]+\n", "\n", svg))
            (DOCS / f"{name}.svg").write_text(svg, encoding="utf-8")
            await app.action_quit()
        app.store.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["pictures"]:
        for each in PICTURES:
            asyncio.run(picture(each))
    write_table()

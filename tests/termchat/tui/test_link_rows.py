"""Links as the whole application draws them."""

import re
from typing import Any

from rich.console import Console

OPENED = re.compile("\x1b]8;id=([0-9a-f]+);([^\x1b]*)\x1b\\\\")


async def test_rows_of_a_link_are_one_link_on_the_screen(open_app: Any, script: Any) -> None:
    address = "https://example.com/" + "long/" * 12
    async with open_app(script(f"See {address} there."), size=(40, 20)) as d:
        await d.say("where?")
        console = Console(color_system="truecolor", force_terminal=True, width=40)
        drawn = "".join(row.render(console) for row in d.app.screen._compositor.render_strips())
        found = OPENED.findall(drawn)
        assert len(found) > 2
        assert len({id for id, _ in found}) == 1
        assert {target for _, target in found} == {address}


async def test_a_terminal_of_ascii_gets_no_links(open_app: Any, script: Any) -> None:
    async with open_app(script("See https://example.com there."), config="ascii = true\n") as d:
        await d.say("where?")
        console = Console(color_system="truecolor", force_terminal=True, width=120)
        drawn = "".join(row.render(console) for row in d.app.screen._compositor.render_strips())
        assert "example.com" in drawn
        assert "\x1b]8" not in drawn

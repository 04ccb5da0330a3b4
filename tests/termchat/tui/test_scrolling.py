"""What is on screen, and what the scroll bar says of it."""

from __future__ import annotations

import asyncio
from typing import Any

from termchat.store import Store

LINES = "\n".join(f"line {n}" for n in range(200))


def thumb_is_right(transcript: Any) -> bool:
    """Whether it is where it belongs, to an eighth of a cell."""
    if not transcript.show_vertical_scrollbar:
        return False
    bar, height = transcript.vertical_scrollbar, transcript.size.height
    drawn = 8 * height * bar.position / bar.window_virtual_size
    return bool(abs(drawn - 8 * height * transcript.scroll_offset.y / transcript.virtual_size.height) <= 1.5)


async def test_B18_the_scroll_bar_shows_the_end_after_a_large_paste(open_app: Any, script: Any) -> None:
    async with open_app(script("reply", step=0.2)) as d:
        d.main.prompt.paste(LINES)
        await d.press("enter")
        transcript = d.main.view.transcript
        await d.until(lambda: transcript.scroll_offset.y == transcript.max_scroll_y > 100)
        await d.until(lambda: thumb_is_right(transcript))
        await d.settle()
        assert thumb_is_right(transcript)


async def test_a_message_sent_while_scrolled_up_is_shown(open_app: Any, script: Any) -> None:
    async with open_app(script("one", "two", "three", step=0.01)) as d:
        await d.say(LINES)
        transcript = d.main.view.transcript
        for text in ("here I am", "and here"):
            transcript.scroll_to(y=3, animate=False, force=True)
            await d.until(lambda: "line 5" in d.screen)
            await asyncio.sleep(0.1)
            await d.say(text)
            assert text in d.screen
            assert transcript.scroll_offset.y == transcript.max_scroll_y
            assert thumb_is_right(transcript)


async def test_a_long_chat_is_drawn_with_one_look_at_its_tree(
    open_app: Any, script: Any, tmp_path: Any
) -> None:
    class Counted(dict):  # type: ignore[type-arg]
        looks = 0

        def values(self) -> Any:
            Counted.looks += 1
            return super().values()

        def items(self) -> Any:
            Counted.looks += 1
            return super().items()

    with Store(tmp_path / "data" / "termchat.db") as store:
        store.create_conversation("one", model="")
        parent = None
        for number in range(50):
            message = store.add_message("one", "user" if number % 2 == 0 else "assistant", "x", parent)
            if number == 49:
                store.add_message("one", "assistant", "y", parent)
            parent = message.id
    async with open_app(script(), conversation="one") as d:
        await d.until(lambda: len(d.main.view.transcript.messages) == 50)
        assert "2/2" in d.main.view.transcript.messages[-1].label
        d.conversation.tree = Counted(d.conversation.tree)
        d.main.view.show(d.conversation)
        assert 0 < Counted.looks <= 3

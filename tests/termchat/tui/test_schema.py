"""`/schema`: the replies of one conversation as JSON."""

from __future__ import annotations

import json
from typing import Any


async def test_replies_keep_to_the_schema_of_their_conversation(open_app: Any, script: Any) -> None:
    # Each token of the script is sure, so nothing is left to chance: the schema ends the string that goes on.
    async with open_app(script('"yes", I think', "free")) as d:
        await d.say("/schema")
        await d.shows("replies are free; /schema")
        await d.say("/schema yes-no")
        await d.shows("replies keep to the schema")
        await d.shows("schema yes-no")  # in the title, as long as it holds
        await d.say("hello")
        assert d.conversation.messages[-1].text == '"yes"'
        stored = await d.app.store.call(lambda store: store.conversation(d.conversation.id))
        assert json.loads(stored.params["schema"])["enum"] == ["yes", "no"]
        await d.say("/set max_tokens 50")
        assert {"schema", "max_tokens"} == {*d.conversation.sampling}
        await d.say("/schema")
        await d.shows('"enum"')
        await d.say("/schema off")
        await d.shows("replies are free")
        assert [*d.conversation.sampling] == ["max_tokens"]
        assert "yes-no" not in d.screen.splitlines()[1]
        await d.say("hello")
        assert d.conversation.messages[-1].text == "free"


async def test_what_can_t_be_kept_to_is_said(open_app: Any, script: Any) -> None:
    async with open_app(script("x")) as d:
        for text, says in (
            ("/schema lsit", "did you mean 'list'?"),
            ('/schema {"not": {}}', "does not support not"),
            ("/schema /no/such/file", "cannot be read"),
        ):
            d.main.prompt.load(text)
            await d.press("enter")
            await d.shows(says)
        assert not d.conversation.sampling

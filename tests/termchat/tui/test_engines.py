"""Several models at once: each conversation has its own, and the memory decides how many are loaded."""

from collections.abc import Callable
from typing import Any

import pytest

from termchat.tui.engines.model_slot import EngineUnavailableError

LONG = " ".join(str(number) for number in range(60))


def two(script: Callable[..., Any], step: float = 0.01) -> dict[str, Any]:
    """Two scripted models by name."""
    return {
        "small": script(f"small {LONG}", "small again.", step=step),
        "large": script(f"large {LONG}", "large again.", step=step, context=1024),
    }


async def test_conversations_with_different_models_stream_at_once(stage: Any, script: Any) -> None:
    async with stage(two(script)) as s:
        one, other = s.conversations.new(), None
        s.turns.submit(one, "a")
        await s.until(lambda: one.id is not None)
        other = s.conversations.new()
        await s.conversations.set_model(other, "large")
        s.turns.submit(other, "b")
        await s.until(lambda: one.state == other.state == "decode")
        assert [slot.title for slot in s.engines.loaded] == ["small", "large"]
        # Both engines count their requests from one; the speeds must not be mixed up.
        replies = [reply for chat in (one, other) for reply in chat.live.values()]
        assert len({reply.stream.id for reply in replies}) == 1

        def shown() -> list[Any]:
            s.monitor.read()  # a snapshot may be from before the reply began
            return [share.conversation for share in s.monitor.stats.shares]

        await s.conversations.show(other)
        await s.until(lambda: shown() == [other])
        await s.conversations.show(one)
        await s.until(lambda: shown() == [one])
        await s.until(lambda: not one.busy and not other.busy)
        assert one.messages[-1].text == f"small {LONG}"
        assert other.messages[-1].text == f"large {LONG}"
        assert [message.model for message in other.messages] == ["large", "large"]
        assert [chat.model for chat in (one, other)] == ["small", "large"]
        stored = await s.store.call(lambda store: store.conversation(other.id))
        assert stored.model == "large"


async def test_a_model_without_room_is_an_error_and_loads_after_one_was_unloaded(
    stage: Any, script: Any
) -> None:
    async with stage(two(script, step=0)) as s:
        await s.until(lambda: s.engines.loaded)
        s.models.memory = 150
        chat = s.conversations.new()
        await s.conversations.set_model(chat, "large")
        await s.ask("hello", chat)
        assert "large needs 100 B; 50 B are free beside small" in chat.error
        assert [message.text for message in chat.messages] == ["hello"]
        await s.engines.default.unload()
        assert s.engines.loaded == []
        s.turns.regenerate(chat, chat.messages[0])
        await s.until(lambda: not chat.busy)
        assert chat.messages[-1].text == f"large {LONG}"
        with pytest.raises(EngineUnavailableError, match="small needs"):
            await s.engines.ready("small")


async def test_memory_that_a_loading_model_will_take_is_counted(stage: Any, script: Any) -> None:
    async with stage(two(script, step=0)) as s:
        await s.until(lambda: s.engines.loaded)
        small, large = s.engines.of("small"), s.engines.of("large")
        assert await s.engines.shortage(large) is None
        s.models.memory = 250
        small.state = "loading"  # as if it were not in the memory yet
        engine, small.engine = small.engine, None
        lack = await s.engines.shortage(large)
        assert lack is None  # 250 free, 100 of it will be taken, 100 are needed
        s.models.memory = 190
        lack = await s.engines.shortage(large)
        assert lack is not None
        assert (lack.needed, lack.free, lack.loaded) == (100, 90, ())
        small.engine, small.state = engine, "ready"


async def test_an_unloaded_model_keeps_what_was_said_and_comes_back(stage: Any, script: Any) -> None:
    async with stage({"small": script(LONG, step=0.01)}) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "count")
        await s.until(lambda: any(reply.text for reply in chat.live.values()))
        await s.engines.of("small").unload()
        await s.until(lambda: not chat.busy)
        assert chat.messages[-1].status == "interrupted"
        assert LONG.startswith(chat.messages[-1].text)
        await s.ask("again", chat)
        assert chat.messages[-1].text == LONG  # a new engine counts its requests from one


async def test_the_model_of_a_new_conversation_is_noted_when_it_is_known(stage: Any, script: Any) -> None:
    async with stage(two(script, step=0), start=False) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "early")
        await s.until(lambda: chat.id is not None)
        await s.engines.start("large")
        await s.until(lambda: not chat.busy)
        assert chat.model == "large"
        assert (await s.store.call(lambda store: store.conversation(chat.id))).model == "large"


async def test_settings_made_while_the_first_message_is_stored_are_kept(stage: Any, script: Any) -> None:
    import asyncio

    async with stage(two(script, step=0)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "hello")
        await asyncio.sleep(0)  # the pump hands the message to the store's thread
        await s.conversations.set_system(chat, "Be short.")
        await s.conversations.set_params(chat, {"top_k": 3})
        await s.until(lambda: not chat.busy)
        assert (chat.system, chat.sampling) == ("Be short.", {"top_k": 3})
        stored = await s.store.call(lambda store: store.conversation(chat.id))
        assert (stored.system, dict(stored.params)) == ("Be short.", {"top_k": 3})


# As the user meets it


async def begin(d: Any, text: str) -> Any:
    """A conversation with the default model, in which a reply is coming."""
    await d.say(text, wait=False)
    chat = d.conversation
    await d.until(lambda: any(reply.text for reply in chat.live.values()))
    return chat


async def test_choosing_a_model_changes_this_conversation_and_stops_nothing(
    open_app: Any, script: Any
) -> None:
    async with open_app(two(script, step=0.02)) as d:
        first = await begin(d, "a")
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        await d.say("/model large", wait=False)
        await d.until(lambda: d.conversation.model == "large")
        second = await begin(d, "b")
        assert first.busy
        assert [slot.title for slot in d.app.engines.loaded] == ["small", "large"]
        await d.settle()
        await d.shows("/1.0k")
        assert first.messages[-1].text == f"small {LONG}"
        assert second.messages[-1].text == f"large {LONG}"
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation.id is None)
        assert d.main.slot.title == "large"


@pytest.mark.parametrize("answer", ["wait", "stop", "go on", "cancel"])
async def test_without_room_the_user_is_asked(open_app: Any, script: Any, answer: str) -> None:
    async with open_app(two(script, step=0.01)) as d:
        first = await begin(d, "a")
        d.models.memory = 150
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        await d.app.conversations.set_model(d.conversation, "large")
        second = d.conversation
        await d.say("b", wait=False)
        await d.shows("Not enough memory for large as well", "large needs 100 B; 50 B are free beside small")
        await d.shows("stop 1 reply and unload small", "go on with small", "wait until small is idle")
        downs = {"wait": 0, "stop": 1, "go on": 2, "cancel": 3}[answer]
        await d.press(*["down"] * downs, "enter")
        if answer == "cancel":
            await d.until(lambda: d.main.prompt.text == "b")
            assert second.id is None
            assert first.busy
            return
        await d.until(lambda: second.id is not None and not second.busy)
        await d.settle()
        whole = first.messages[-1].text == f"small {LONG}"
        assert whole is (answer != "stop")
        assert first.messages[-1].status == ("interrupted" if answer == "stop" else "done")
        assert second.messages[-1].text == ("small again." if answer == "go on" else f"large {LONG}")
        assert second.model == ("small" if answer == "go on" else "large")
        loaded = ["small"] if answer == "go on" else ["large"]
        assert [slot.title for slot in d.app.engines.loaded] == loaded


async def test_unload_asks_only_if_it_would_stop_a_reply(open_app: Any, script: Any) -> None:
    async with open_app(two(script, step=0.02)) as d:
        chat = await begin(d, "a")
        await d.say("/unload", wait=False)
        await d.shows("It is making 1 reply")
        await d.press("escape")
        await d.until(lambda: len(d.app.screen_stack) == 2)
        assert chat.busy
        d.main.prompt.load("/unload large")
        await d.press("enter")
        await d.shows("large is not loaded; loaded: small")
        await d.say("/unload", wait=False)
        await d.shows("It is making 1 reply")
        await d.press("enter")
        await d.until(lambda: not d.app.engines.loaded and not chat.busy)
        assert chat.messages[-1].status == "interrupted"
        await d.shows("not loaded")


async def test_the_model_of_an_old_conversation_is_loaded_when_a_message_is_sent(
    open_app: Any, script: Any
) -> None:
    async with open_app(two(script, step=0)) as d:
        await d.app.conversations.set_model(d.conversation, "large")
        await d.say("b")
        old = d.conversation.id
    async with open_app(two(script, step=0)) as d:
        await d.main.switch_to(d.app.conversations.find(old))
        await d.shows("not loaded")
        assert [slot.title for slot in d.app.engines.loaded] == ["small"]
        await d.say("more")
        assert d.conversation.messages[-1].model == "large"


async def test_a_model_that_is_gone_is_asked_about(open_app: Any, script: Any) -> None:
    async with open_app(two(script, step=0)) as d:
        await d.say("a")
        await d.app.conversations.set_model(d.conversation, "/no/such/model.gguf")
        d.main.prompt.load("more")
        await d.press("enter")
        await d.shows("model.gguf is not on this machine", "there is no model file", "go on with small")
        await d.press("enter")
        await d.settle()
        assert d.conversation.messages[-1].text == "small again."
        assert d.conversation.model == "small"


async def test_the_command_line_names_the_model_of_the_conversation_it_goes_on_with(
    open_app: Any, script: Any
) -> None:
    async with open_app(two(script, step=0)) as d:
        await d.say("a")
    async with open_app(two(script, step=0), newest=True, model="large") as d:
        await d.until(lambda: d.conversation.model == "large")
        await d.say("b")
        assert d.conversation.messages[-1].text == f"large {LONG}"

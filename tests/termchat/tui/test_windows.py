"""Several windows and programs with the same conversations; signs that are there after a restart."""

import asyncio
from typing import Any

import pytest

from termchat.store import Store
from termchat.tui.conversations.collection import Conversations
from termchat.tui.screens import main

LONG = " ".join(str(number) for number in range(60))


async def test_conversations_of_other_programs_appear(
    open_app: Any, script: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "TICKS_A_LOOK", 1)
    async with open_app(script("One.", "Two.")) as d:
        await d.say("mine")
        with Store(tmp_path / "data" / "termchat.db") as other:
            begun = other.begin_turn("team", "a question from a script", model="")
            begun.reply.append("half of its")
            await d.shows("● a question")  # somebody is writing there
            begun.reply.append(" answer")
            begun.reply.finish()
            await d.until(lambda: "● a question" not in d.screen)
            await d.press("ctrl+o")
            d.type_ahead(*"half")
            await d.shows("half of its answer")
            await d.press("enter")
            await d.until(lambda: d.conversation.id == "team")
            await d.shows("a question from a script", "half of its answer")
            other.add_message("team", "user", "and now this")
            await d.shows("what was added in another window is here now", "and now this")
            begun = other.begin_turn("team", "third")
            for word in ("growing ", "and growing"):
                begun.reply.append(word)
                begun.reply._saved = float("-inf")
                begun.reply.tick()
                await d.shows(word)
            begun.reply.finish()
            other.rename("team", "of the script")
            await d.shows("of the script")
            other.delete("team")
            await d.shows("of the script: deleted in another window")
            await d.press("ctrl+n")
            await d.until(lambda: [chat.title for chat in d.app.conversations.all] == ["New chat", "mine"])


async def test_a_program_that_dies_while_it_answers_is_seen(stage: Any, script: Any) -> None:
    async with stage(script("One.")) as s:
        other = Store(s.database)
        begun = other.begin_turn("team", "question")
        begun.reply.append("half")
        await s.conversations.windows.refresh()
        chat = s.conversations.find("team")
        assert chat.state == "decode"
        assert not chat.busy
        other._writer.close()  # as its death does
        await s.conversations.windows.refresh()
        assert chat.state == "interrupted"
        other.database.close()


async def test_what_is_shown_is_kept_where_another_window_takes_another_way(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.", "Three.")) as s:
        chat = await s.ask("first")
        await s.ask("second", chat)
        await s.conversations.show(chat)
        shown = [message.id for message in chat.messages]
        with Store(s.database) as other:
            edited = other.edit(shown[2], "second, edited elsewhere")
            await s.conversations.windows.refresh()
            assert [message.id for message in chat.messages] == shown
            assert chat.siblings(chat.messages[2]) == [shown[2], edited.id]
            other.add_message(chat.id, "user", "below", shown[-1])
            await s.conversations.windows.refresh()
            assert chat.messages[-1].text == "below"
        await s.conversations.show(s.conversations.new())
        with Store(s.database) as other:
            other.add_message(chat.id, "assistant", "unseen", chat.leaf_id)
        await s.conversations.windows.refresh()
        assert chat.tree is None  # it is read when it is opened, with a word
        before = len(s.listener.notices)
        await s.conversations.show(chat)
        assert s.listener.notices[before:] == ["what was added in another window is here now"]
        assert chat.messages[-1].text == "unseen"


async def test_sending_where_another_window_has_deleted(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        await s.conversations.show(chat)
        with Store(s.database) as other:
            other.delete(chat.id)
        await s.conversations.windows.refresh()
        assert chat.gone
        await s.ask("second", chat)
        assert chat.error == "this conversation was deleted in another window; /undelete brings it back"
        assert chat.unsent == "second"
        assert await s.conversations.undelete() is chat
        assert not chat.gone
        await s.ask("third", chat)
        assert [message.text for message in chat.messages][2:5] == ["second", "Two.", "third"]


async def test_own_changes_are_not_undone_by_what_is_read(stage: Any, script: Any) -> None:
    async with stage(script("One.")) as s:
        chat = await s.ask("first")
        with Store(s.database) as other:
            other.get_or_create("another")
        look = s.conversations.windows.refresh()
        task = s.conversations.set_system(chat, "Be kind.")
        await task
        await look
        assert chat.system == "Be kind."
        await s.conversations.windows.refresh()
        assert {each.id for each in s.conversations.all} == {chat.id, "another"}


async def test_signs_of_the_list_are_there_after_a_restart(stage: Any, script: Any) -> None:
    async with stage(script("One.", LONG, "Seen.", step=0.01)) as s:
        hidden = s.conversations.new()
        await s.conversations.show(hidden)
        s.turns.submit(hidden, "hidden")
        await s.until(lambda: hidden.id is not None)
        seen = s.conversations.new()
        await s.conversations.show(seen)
        await s.until(lambda: not hidden.busy)
        stopped = await s.conversations.add(lambda store: store.create_conversation(title="stopped"))
        await s.conversations.show(stopped)
        s.turns.submit(stopped, "go")
        await s.until(lambda: stopped.live and next(iter(stopped.live.values())).text)
        s.turns.stop(stopped)
        await s.until(lambda: not stopped.busy)
        asked = await s.conversations.add(lambda store: store.create_conversation(title="asked"))
        with Store(s.database) as other:
            other.add_message(asked.id, "user", "nobody answers")

        async def signs() -> dict[str, tuple[str, bool]]:
            fresh = Conversations(s.store, s.listener)
            await fresh.load()
            return {chat.title: (chat.state, chat.unread) for chat in fresh.all if chat.id}

        assert await signs() == {
            "hidden": ("idle", True),
            "stopped": ("interrupted", False),
            "asked": ("interrupted", False),
        }
        await s.conversations.show(hidden)
        assert (await signs())["hidden"] == ("idle", False)


class Silent:
    """A request that the engine is at for as long as the test takes."""

    id = 1
    finished = None

    def abort(self) -> None: ...

    async def __anext__(self) -> None:
        await asyncio.Event().wait()


async def test_esc_before_the_first_token_acts_at_once(
    stage: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        with monkeypatch.context() as patch:
            patch.setattr(s.engines.default.engine, "generate", lambda *a, **k: Silent())
            s.turns.submit(chat, "second")
            await s.until(lambda: chat.live)
            assert s.turns.stop(chat) == []
            await s.until(lambda: not chat.busy)
        assert [message.text for message in chat.messages] == ["first", "One.", "second"]
        assert (chat.cut, chat.state) == (True, "interrupted")
        s.turns.regenerate(chat, chat.messages[-1])
        await s.until(lambda: not chat.busy)
        assert (chat.messages[-1].text, chat.cut, chat.state) == ("Two.", False, "idle")


async def test_what_was_stopped_before_its_first_token_says_what_answers(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.", step=0.5)) as d:
        await d.say("a question", wait=False)
        await d.until(lambda: d.conversation.live)
        d.app.turns.stop(d.conversation)
        await d.shows("stopped before the first token · F5 answers", "‖ a question")
        assert [message.role for message in d.conversation.messages] == ["user"]
        await d.press("f5")
        await d.until(lambda: len(d.conversation.messages) == 2 and not d.conversation.busy)
        await d.until(lambda: "F5 answers" not in d.screen)


async def test_an_empty_conversation_takes_no_number(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.")) as d:
        await d.say("first")
        first = d.conversation
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        await d.press("alt+1")
        await d.until(lambda: d.conversation is first)


async def test_the_context_bar_moves_while_a_first_reply_comes(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG * 4, step=0.004, context=480), size=(140, 40)) as d:
        await d.say("first", wait=False)
        await d.until(lambda: d.conversation.live and d.conversation.tokens_used)
        used = d.conversation.tokens_used
        await d.shows("/480")
        await d.until(lambda: d.conversation.tokens_used > used + 20)
        assert d.conversation.busy
        assert d.app.monitor.stats.fits is not None
        await d.until(lambda: d.conversation.warned)
        assert d.conversation.busy  # it is said before the reply has filled the context
        await d.shows("tokens of the context are used")


async def test_N017_what_cannot_go_along_is_said_and_nothing_is_sent(
    open_app: Any, script: Any, tmp_path: Any
) -> None:
    (tmp_path / "notes.txt").write_text("xyzzy", encoding="utf-8")
    (tmp_path / "big.txt").write_text("word " * 3000, encoding="utf-8")
    async with open_app(script("One.", "Two.", "Three.", context=2048), size=(200, 40)) as d:
        d.app.folder = tmp_path
        prompt = d.main.prompt

        async def enter(text: str) -> None:
            prompt.insert(text)
            await d.press("enter")
            await d.settle()

        await enter("what is in @missing.txt and @notes.txt")
        await d.shows("there is no file missing.txt: nothing is sent; enter again sends")
        assert prompt.text == "what is in @missing.txt and @notes.txt"
        assert d.conversation.messages == []
        await d.press("enter")
        await d.shows("One.")
        assert d.conversation.messages[0].text.endswith("@notes.txt\n\n```notes.txt\nxyzzy\n```")
        await enter("see @big.txt")
        await d.shows("with big.txt (15.0 kB) the prompt has", "but the context holds 2048")
        assert prompt.text == "see @big.txt"
        assert len(d.conversation.messages) == 2
        prompt.load("")
        await enter("mail someone@example.org about @scope/pkg")
        await d.shows("Two.")


async def test_a_message_that_no_context_holds_stays_in_the_prompt(open_app: Any, script: Any) -> None:
    long = "word " * 3000
    async with open_app(script("One.", "Two.", context=2048), size=(160, 40)) as d:
        await d.say("fox")
        d.main.prompt.paste(long)
        await d.press("enter")
        await d.shows("the message has", "holds 2048, so nothing is", "shorten it")
        await d.until(lambda: d.main.prompt.value == long)
        assert [message.text for message in d.conversation.messages] == ["fox", "One."]
        assert not d.conversation.error
        await d.press("enter")  # who insists is told by the engine
        await d.until(lambda: d.conversation.full)
        assert [message.text for message in d.conversation.messages][:3] == ["fox", "One.", long]


async def test_N018_pasted_text_attaches_nothing_and_text_put_back_is_asked_for(
    open_app: Any, script: Any, tmp_path: Any
) -> None:
    from textual.events import Paste

    (tmp_path / "pkg.txt").write_text("secret " * 100, encoding="utf-8")
    log = "\n".join(f"line {n} @pkg.txt built" for n in range(12))
    async with open_app(script("One.", "Two.", "Three."), size=(160, 40)) as d:
        d.app.folder = tmp_path
        prompt = d.main.prompt
        prompt.post_message(Paste(log))
        await d.until(lambda: prompt.value == log)
        d.type_ahead(*" explain", "enter")
        await d.shows("One.", "@pkg.txt stands in pasted text")
        assert d.conversation.messages[0].text == f"{log} explain"
        prompt.post_message(Paste("@pkg.txt"))
        await d.until(lambda: prompt.value == "@pkg.txt")
        await d.press("ctrl+n")  # the draft comes back as what it was
        await d.press("ctrl+pagedown")
        await d.until(lambda: prompt.value == "@pkg.txt")
        await d.press("enter")
        await d.shows("Two.")
        assert d.conversation.messages[2].text == "@pkg.txt"
        prompt.load("see @pkg.txt")
        await d.press("enter")
        await d.shows("pkg.txt would go along; enter again sends it so")
        await d.press("enter")
        await d.shows("Three.")
        assert "secret" in d.conversation.messages[4].text


async def test_N012_megabytes_that_were_sent_are_not_laid_out(open_app: Any, script: Any) -> None:
    text = "some words here\n" * 100_000
    async with open_app(script("One.", context=8192)) as d:
        d.main.prompt.load(text)
        await d.press("enter")
        await d.shows("the message has")
        await d.press("enter")
        await d.until(lambda: d.conversation.messages)
        await d.until(lambda: d.main.view.transcript.messages)
        assert d.conversation.messages[0].text == text
        (drawn, *_) = d.main.view.transcript.messages
        assert len(drawn.text) < 110_000
        assert drawn.text.endswith("1500000 more characters, which were sent and are stored")

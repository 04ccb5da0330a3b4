"""What is typed can be completed: commands, what may follow them, and files; nothing depends on how fast."""

import threading
from pathlib import Path
from typing import Any

import pytest

from termchat.tui import completion
from termchat.tui.commands import COMMANDS
from termchat.tui.completion import LOOKED_AT, CommandCompleter
from termchat.tui.widgets.suggestions import MOST, Suggestions


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to complete in, which is the current one."""
    folder = tmp_path / "files"
    (folder / "sub dir").mkdir(parents=True)
    for name in ("notes.txt", "Novel.md", ".hidden", "sub dir/in it.txt", "odd\x1bname", "back\\slash"):
        (folder / name).write_text("text", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


class FakeUi:
    """As much of the interface as completing needs."""

    def __init__(self, folder: Path) -> None:
        self.app = self
        self.folder = folder
        self.theme_names = ["dusk", "paper", "terminal"]


async def completed(folder: Path, before: str, *, first: bool = True) -> list[str] | None:
    """The texts that a line may become; None: there is nothing to complete."""
    completer = CommandCompleter(FakeUi(folder), COMMANDS)  # type: ignore[arg-type]
    unfinished = completer.unfinished(before, first=first)
    if unfinished is None:
        return None
    assert unfinished.end == len(before)
    if completer.completions(unfinished) is None:
        await completer.list_folder(unfinished)
    return [before[: unfinished.start] + item.text for item in completer.completions(unfinished) or ()]


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("/the", ["/theme "]),
        ("/THE", ["/theme "]),
        ("/emp", []),
        ("/heme", ["/theme "]),  # not only beginnings
        ("/theme p", ["/theme paper"]),
        ("/theme paper", []),  # it is finished
        ("/panel ", ["/panel full", "/panel mini", "/panel off"]),
        ("/export j", ["/export json"]),
        ("/set top", ["/set top_k", "/set top_p"]),
        ("/nothing x", None),
        ("//the", None),
        (" /the", None),
        ("either/or", None),
        ("see @no", ["see @notes.txt", "see @Novel.md"]),
        ("see @notes.txt", []),
        ("see @s", [r"see @sub\ dir/"]),
        (r"see @sub\ dir/", [r"see @sub\ dir/in\ it.txt"]),
        ("see @.", ["see @.hidden"]),
        ("see @o", []),  # its name holds an escape code
        ("see @b", [r"see @back\\slash"]),
        ("mail a@n", None),
        ("see @notes.txt and", None),
        ("/attach no", ["/attach notes.txt", "/attach Novel.md"]),
        ("/attach sub d", ["/attach sub dir/"]),
        ("@nowhere/x", []),
        ("@~nobody-of-this-name/x", []),
        ("@\0/", []),
    ],
)
async def test_a_line_may_become(files: Path, before: str, texts: list[str] | None) -> None:
    assert await completed(files, before) == texts


async def test_commands_stand_in_the_first_line_only(files: Path) -> None:
    assert await completed(files, "/the", first=False) is None
    assert await completed(files, "@no", first=False) == ["@notes.txt", "@Novel.md"]


async def test_every_command_is_found_by_its_name(files: Path) -> None:
    for command in COMMANDS:
        if command.slash:
            found = await completed(files, f"/{command.slash}")
            assert found is not None
            assert found[0].rstrip() == f"/{command.slash}"


async def test_a_huge_folder_is_not_read_to_its_end(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("termchat.tui.completion.LOOKED_AT", 2)
    found = await completed(files, "@")
    assert found is not None
    assert len(found) <= 2 < LOOKED_AT


async def test_tab_takes_and_enter_carries_out(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"/the")
        await d.shows("  /theme [NAME]   choose a theme", "tab take")
        await d.press("tab")
        assert d.main.prompt.text == "/theme "
        await d.shows("paper")
        await d.press("up", "up", "down")  # the last one but one and back
        last = d.app.theme_names[-1]
        await d.press("enter")
        await d.until(lambda: d.app.theme == last)
        assert d.main.prompt.text == ""
        assert d.main.query_one(Suggestions).line_count == 0
        await d.press(*"/conf", "down", "enter")
        await d.until(lambda: d.main.view.confidence)


async def test_enter_carries_out_no_command_that_is_only_begun(
    open_app: Any, script: Any, files: Path
) -> None:
    async with open_app(script("One.")) as d:
        await d.say("hello")
        await d.press(*"/d")
        assert d.main.prompt.offer.at is None
        await d.press("enter")
        await d.shows("there is no command /d", "did you mean /delete?")
        assert d.main.prompt.text == "/d"
        assert d.conversation.messages
        d.type_ahead(*"ele", "enter")
        await d.typed()
        await d.shows("did you mean /delete?")
        assert d.conversation.messages
        d.type_ahead(*"te", "enter")
        await d.until(lambda: not d.conversation.messages)


async def test_keys_in_a_burst_complete_as_slow_ones_do(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.", "Two.", "Three.")) as d:
        d.type_ahead(*"see @su", "tab", *"in", "tab", *" now", "enter")
        await d.until(lambda: bool(d.conversation.messages))
        await d.settle()
        sent = d.conversation.messages[0].text
        assert sent.startswith("see @sub\\ dir/in\\ it.txt now\n\n```in it.txt\ntext\n")
        d.type_ahead(*"hello @no", "enter")  # a file is never taken by Enter alone
        await d.typed()
        await d.settle()
        assert d.conversation.messages[2].text == "hello @no"
        await d.press(*"see @no")
        await d.shows("Novel.md")
        d.type_ahead("down", "down", "enter")
        await d.until(lambda: d.main.prompt.text == "see @Novel.md")


async def test_escape_refuses_for_this_word(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"a @n")
        await d.shows("notes.txt", "Novel.md")
        await d.press("escape", "o")
        assert not d.main.prompt.offer.items
        assert d.main.prompt.text == "a @no"
        assert "notes.txt" not in d.screen
        await d.press("tab")  # nothing to complete: it goes on to the next part
        assert not d.main.prompt.has_focus
        await d.press("escape", " ", *"@no")
        await d.shows("notes.txt")
        await d.press("left", "left", "left", "left")  # to the blank before it
        assert not d.main.prompt.offer.items


async def test_what_was_refused_is_offered_in_the_next_message(
    open_app: Any, script: Any, files: Path
) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"/confidence", "escape", "enter")
        await d.until(lambda: d.main.view.confidence)
        await d.press("/")
        await d.shows("/stop [all]")


async def test_nothing_is_replaced_where_the_cursor_has_gone(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"hello", "ctrl+j", *"@no")
        await d.shows("Novel.md")
        await d.pilot.click(d.main.prompt, offset=(5, 1))  # above it: the third column, too
        await d.until(lambda: d.main.prompt.cursor_location == (0, 3))
        await d.until(lambda: not d.main.prompt.offer.items)
        await d.press("tab")
        assert d.main.prompt.text == "hello\n@no"


async def test_a_click_on_what_is_not_offered_any_more_takes_nothing(
    open_app: Any, script: Any, files: Path
) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"@n")
        await d.shows("Novel.md")
        shown = d.main.prompt.offer
        await d.press("o", "t")
        d.main.query_one(Suggestions).post_message(Suggestions.Taken(shown, 1))
        await d.settle()
        assert d.main.prompt.text == "@not"


async def test_what_is_put_back_or_pasted_offers_nothing(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.", "Two.")) as d:
        d.main.prompt.load("@no")
        assert not d.main.prompt.offer.items
        d.main.prompt.load("")
        d.main.prompt.paste("/th")
        assert not d.main.prompt.offer.items


async def test_a_click_takes(open_app: Any, script: Any, files: Path) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"@no")
        await d.shows("Novel.md")
        await d.pilot.click(Suggestions, offset=(6, 1))
        await d.until(lambda: d.main.prompt.text == "@Novel.md")


async def test_the_rows_stay_while_there_are_fewer(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.press("/")
        await d.until(lambda: d.main.query_one(Suggestions).size.height == MOST)
        assert d.main.prompt.offer.at is None  # Enter runs nothing that nobody named
        await d.press("b")
        await d.shows("/best")
        assert d.main.query_one(Suggestions).size.height == MOST
        await d.press("backspace", "backspace")
        await d.until(lambda: d.main.query_one(Suggestions).size.height == 0)


async def test_a_folder_that_does_not_answer_is_asked_once(
    open_app: Any, script: Any, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), []
    real = completion._listed

    def slow(above: str, folder: Path) -> Any:
        asked.append(above)
        if above == "sub dir/":
            answers.wait()
        return real(above, folder)

    monkeypatch.setattr(completion, "_listed", slow)
    async with open_app(script("One.")) as d:
        await d.press(*"@sub\\ dir/in")
        await d.until(lambda: "sub dir/" in asked)
        await d.press(*"\\ i", "backspace", "i")
        assert asked == ["", "sub dir/"]
        await d.press(*" @no")  # others answer meanwhile
        await d.shows("Novel.md")
        await d.press(*["backspace"] * 4)
        answers.set()
        await d.shows("sub dir/in it.txt")

"""Commands need no screen: what they see of the interface is a protocol, which something else can keep."""

from types import SimpleNamespace
from typing import Any

import pytest

from termchat.tui.command import CommandError, find
from termchat.tui.commands import COMMANDS
from termchat.tui.ui import Program, Ui


class StandIn:
    """An interface without a terminal; it notes what it is asked for."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.copied: list[str] = []
        self.wanted = SimpleNamespace(panel="full")
        self.view = SimpleNamespace(focused=None)
        self.notices: list[str] = []
        self.back: list[str] = []
        self.drafts = self
        self.app = SimpleNamespace(
            conversations=stage.conversations,
            engines=stage.engines,
            turns=stage.turns,
            copy_to_clipboard=self.copied.append,
        )

    @property
    def conversation(self) -> Any:
        return self.stage.conversations.all[0]

    @property
    def slot(self) -> Any:
        return self.stage.engines.default

    def notify_user(self, text: str, *, error: bool = False) -> None:
        self.notices.append(text)

    def want(self, **wanted: Any) -> None:
        self.wanted = SimpleNamespace(**wanted)

    def give_back(self, conversation: Any, texts: list[str]) -> None:
        self.back += texts

    async def type(self, line: str) -> None:
        command, argument = find(COMMANDS, line)
        await command.run(self, argument)  # type: ignore[arg-type]


async def test_commands_act_on_any_interface(stage: Any, script: Any) -> None:
    async with stage(script("It is red.")) as s:
        ui = StandIn(s)
        await s.ask("Which colour?")
        await ui.type("/copy")
        assert ui.copied == ["It is red."]
        await ui.type("/title Colours")
        assert ui.conversation.title == "Colours"
        await ui.type("/panel")
        assert ui.wanted.panel == "mini"
        with pytest.raises(CommandError, match="/panel takes full, mini, off, not 'wide'"):
            await ui.type("/panel wide")
        await ui.type("/unload")
        assert ui.slot.engine is None
        with pytest.raises(CommandError, match=r"is not loaded; loaded: none"):
            await ui.type("/unload")


async def test_what_was_queued_is_given_back(stage: Any, script: Any) -> None:
    async with stage(script("one two three four " * 20, step=0.05)) as s:
        ui, conversation = StandIn(s), s.conversations.new()
        for text in ("first", "second", "third"):
            s.turns.submit(conversation, text)
        await s.until(lambda: conversation.live)
        await ui.type("/queue")
        assert ui.back == ["second", "third"]
        await ui.type("/stop all")
        await s.until(lambda: not conversation.busy)


async def test_application_and_main_screen_have_all_that_is_promised(open_app: Any, script: Any) -> None:
    async with open_app(script()) as d:
        for protocol, object in ((Program, d.app), (Ui, d.main)):
            of_it = [vars(each) for each in protocol.__mro__ if getattr(each, "_is_protocol", False)]
            names = {name for each in of_it for name in (*each, *each.get("__annotations__", ()))}
            promised = {name for name in names if not name.startswith("_")}
            assert len(promised) > 15
            assert not [name for name in promised if not hasattr(object, name)]


@pytest.mark.parametrize("line", ["/delete 3", "/branch x", "/QUIT now", "/kv all"])
def test_a_command_without_an_argument_takes_none(line: str) -> None:
    with pytest.raises(CommandError, match="takes nothing behind it, not"):
        find(COMMANDS, line)

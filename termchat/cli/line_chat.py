"""A chat line by line, for a terminal: several turns, with memory."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from ..constraints import constrains
from ..errors import UserError
from ..messages import StoredConversation
from ..sanitize import one_line
from ..slash import is_command, is_marked
from ..terminals import wait_for_foreground
from .console import Console
from .errors import OK, failure_of
from .line_editor import LineEditor
from .presenters import PlainPresenter
from .recording import Recording
from .request import Request, model_of, open_recording
from .serving import Serving, check_flags, choose, load_setup, serving, warn_if_slow
from .signals import Interrupted
from .stdin import decode
from .turn import Turn, take_turn

PROMPT = "> "

HELP = """\
/help           this list
/new            begin another conversation
/system TEXT    how the model should behave; without TEXT: as it does by itself
/quit           leave (as Ctrl-D does)
//WORD ...      a message that begins with a slash and a word, as commands do
Ctrl-C stops an answer and keeps what is there.
"""


def chat(console: Console, request: Request) -> int:
    """Talk until the user leaves; the exit code. UserError: there is no model to talk to."""
    wait_for_foreground(console.stdin)
    editor = LineEditor(console.signals)
    check_flags(request.sampling)
    setup = load_setup(console)
    recording, past = open_recording(console, setup.paths.database, request)
    with recording, asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        name = model_of(console, setup.registry, request, past)
        choice = choose(console, setup, name, yes=request.yes, flags=request.engine)
        stack.enter_context(editor.keeping_keys())
        console.messages.note(f"loading {choice.model.name}")
        constrained = constrains(request.sampling_over(past))
        context = serving(console, choice, chat=True, constrained=constrained)
        served = runner.run(context.__aenter__())
        warn_if_slow(console, served)
        try:
            _Chat(console, editor, request, recording, past, served, runner).run()
        finally:
            runner.run(context.__aexit__(None, None, None))
    return OK


class _Chat:
    """The state of a chat: what was said, and how to go on."""

    def __init__(
        self,
        console: Console,
        editor: LineEditor,
        request: Request,
        recording: Recording,
        past: StoredConversation | None,
        served: Serving,
        runner: asyncio.Runner,
    ) -> None:
        self._console = console
        self._editor = editor
        self._request = request
        self._recording = recording
        self._served = served
        self._runner = runner
        self._system = request.system
        self._params = served.params(request.sampling_over(past))

    def run(self) -> None:
        """Read lines and answer them."""
        write = self._console.output.write
        write(f"{one_line(self._served.choice.model.name)}: /help lists commands, Ctrl-D leaves\n")
        while True:
            try:
                line = self._read()
            except EOFError:
                write("\n")
                return
            except Interrupted as interrupt:
                if interrupt.number != signal.SIGINT:
                    raise
                self._console.signals.forget()
                write("\n(Ctrl-D leaves)\n")
                continue
            if line.strip() and self._handle(line):
                return

    def _read(self) -> str:
        """A line, as text whatever the terminal's encoding is."""
        line = self._editor.read(PROMPT)
        return decode(line.encode("utf-8", "surrogateescape"), "the line", self._console.messages.note)

    def _handle(self, line: str) -> bool:
        """Carry out a command or answer a message; whether to leave."""
        if not is_command(line):
            self._answer(line[1:] if is_marked(line) else line)
            return False
        write = self._console.output.write
        command, _, argument = line.strip().partition(" ")
        if command in ("/quit", "/exit"):
            return True
        if command == "/help":
            write(HELP)
        elif command == "/new":
            self._recording.new_conversation()
            write("a new conversation\n")
        elif command == "/system":
            self._system = argument.strip()
            write(f"system prompt: {self._system or '(the default of the model)'}\n")
        else:
            write(f"there is no command {one_line(command)}; /help lists them\n")
        return False

    def _answer(self, text: str) -> None:
        turn = Turn(said=text, params=self._params, system=self._system, measure=self._request.stats)
        presenter = PlainPresenter(self._console)
        try:
            reply = self._runner.run(take_turn(self._console, self._served, presenter, self._recording, turn))
        except UserError as error:
            presenter.failed(failure_of(error))
            self._console.messages.note(str(error))
        except Interrupted:  # while the terminal takes nothing: the reply is stored as far as it has come
            pass
        else:
            if self._request.stats:
                self._console.messages.text(reply.stats())
        received = self._console.signals.received
        if received not in (None, signal.SIGINT):
            raise Interrupted(received)
        self._console.signals.forget()

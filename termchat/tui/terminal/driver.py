"""The terminal of the full-screen interface: what it sends, drawing on it, and leaving it as it was.

Textual's driver, but for the input, which is read by `Input` and `Reports`, for the file that is drawn on,
and for the ways out: by the job control's keys, by a fault, and by the last signal.
"""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size

from ...charset import charset
from ...terminals import TMUX_NUMBER, is_background, is_bare, may_be_screen, wait_for_foreground
from .clipboard import request
from .found import (
    ANSWER_SECONDS,
    CLEAR,
    GIVE_WHEEL_BACK,
    HOW_WIDE,
    KEEP_WHEEL,
    NOTE_WHEEL,
    SILENT_SECONDS,
    WHAT_ARE_YOU,
    drawn_on,
    hear_out,
    modes_of,
    restore,
    set_modes,
)
from .input import LONGEST_TYPED, Input
from .paper import Paper
from .reports import Reports

log = logging.getLogger(__name__)

READ_BYTES = 65_536
MOST_AT_ONCE = 16 * 1024 * 1024
LOOK_SECONDS = 0.1
REST_OF_PASTE_SECONDS = 0.05
"""More than can be typed at once is followed by the rest within this time."""

KITTY_FLAGS = 1 | 4 | 8 | 16
"""Of the kitty keyboard protocol: unambiguous, also the key at its place, all keys, with their text."""

_LATER = re.compile(r"\x1b(?:\][^\x1b]*|\[\?\d+\$p|\[[<>=][\d;]*u)")
"""What a bare terminal may show as text: operating system commands, questions for modes, kitty's protocol."""


class DrivenApp(App[None], inherit_bindings=False):
    """An application on a terminal. terminal_gone: called when there is nothing more to read."""

    terminal_gone: Callable[[], object]

    def fail(self, error: BaseException) -> None:
        """End by a fault. From the event loop."""
        raise NotImplementedError


class TerminalDriver(LinuxDriver):
    """Of the application on a terminal."""

    _app: DrivenApp

    def __init__(self, app: DrivenApp, **options: Any) -> None:
        super().__init__(app, **options)
        self._drawn = drawn_on()
        self._paper = Paper(self._drawn)
        self._file = self._paper  # type: ignore[assignment]
        self._modes = modes_of(self.fileno)
        self._raw: list[Any] | None = None  # the modes while it is drawn on
        self._input, self._reports = Input(charset()), Reports()
        self._bare = is_bare(os.environ)
        self._wheel_kept = not self._mouse and not self._bare
        self._active = False
        self._leaves = False
        self._asked = 0.0  # when it was asked what it is
        self._errors: int | None = None  # standard error, while something else is in its place
        self._more = select.poll()
        self._more.register(self.fileno, select.POLLIN)

    # Entering and leaving

    def start_application_mode(self) -> None:
        """Take the terminal, as soon as it is ours; not at all if the program is told to end before."""
        wait_for_foreground(self.fileno, lambda: self._leaves)
        if is_background(self.fileno) and self._leaves:
            return
        self._input = Input(charset())
        self._hush()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._active = self._writer_thread is not None
        self._raw = modes_of(self.fileno)
        if self._active:
            if self._wheel_kept:
                self.write(NOTE_WHEEL + KEEP_WHEEL)
            self.write("\x1b[?2004$p")  # whether it marks pastes
            if not self._bare:
                self.write(HOW_WIDE)
            if may_be_screen(os.environ):
                self.write("\x1b[>c")  # which terminal it is
            self.write(WHAT_ARE_YOU)
            self._asked, self._reports.answered = time.monotonic(), False

    def write(self, data: str) -> None:
        """Draw; the kitty protocol is asked for with the keys' places, too."""
        if self._writer_thread is None or (self._bare and _LATER.fullmatch(data)):
            return
        if data.startswith("\x1b[>") and data.endswith("u"):
            data = f"\x1b[>{KITTY_FLAGS}u"
        super().write(data)

    def keep(self, text: str) -> None:
        """Ask the terminal to keep a text that was copied."""
        tmux = self._reports.number == TMUX_NUMBER
        self.write(request(text, screen=may_be_screen(os.environ) and not tmux))

    def begin_anew(self) -> None:
        """Set every mode again and have everything drawn: something else has changed them or the screen."""
        if not self._active:
            return
        set_modes(self.fileno, self._raw)
        self.write("\x1b[?1049h")
        self._enable_mouse_support()
        if self._mouse_pixels:
            self._enable_mouse_pixels()
        if self._in_band_window_resize:
            self._enable_in_band_window_resize()
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        self.write("\x1b[?25l\x1b[?1004h" + KEEP_WHEEL * self._wheel_kept)
        self.write(f"\x1b[={KITTY_FLAGS};1u")
        self.write(CLEAR)
        size = Size(*self._get_terminal_size())  # that it is another one now may not have been told
        self.send_message(events.Resize(size, size))

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows of the terminal itself; COLUMNS and LINES where it does not know them."""
        with suppress(OSError):
            size = os.get_terminal_size(self._drawn)
            if size.columns and size.lines:
                return size
        return super()._get_terminal_size()

    def stop_application_mode(self) -> None:
        """Give the terminal back."""
        if self._active:
            self._hear_out()
            self.write(CLEAR + GIVE_WHEEL_BACK * self._wheel_kept)
        self._active = False
        super().stop_application_mode()
        self._speak()

    def _hear_out(self) -> None:
        """Take in what the terminal still sends: answers on their way, keys and a mouse in our forms.

        Over a slow connection they would come when the shell reads, which takes them for typed text.
        """
        self.disable_input()
        answered = self._reports.answered
        seconds = ANSWER_SECONDS if answered else self._asked + SILENT_SECONDS - time.monotonic()
        if seconds > 0 and not (self._paper.full or self._paper.gone):
            for words in ("\x1b[?1004l", "\x1b[=0;1u", WHAT_ARE_YOU):
                self.write(words)
            hear_out(self.fileno, 1 if answered else 2, seconds)

    def close(self) -> None:
        """End; what could not be drawn in order is drawn at last."""
        super().close()
        if self._paper.gone:
            self.restore()

    @property
    def behind(self) -> bool:
        """Whether the terminal has not taken yet what was drawn: what is drawn now would be seen late."""
        return self._paper.full

    def hurry(self) -> None:
        """The program has been told to end: it waits for the terminal no more. From any thread."""
        self._leaves = True
        self._paper.hurry()

    def restore(self) -> None:
        """Leave the terminal as it was found, at once and whatever else is going on."""
        first = CLEAR + GIVE_WHEEL_BACK * self._wheel_kept if self._active else ""
        restore(self.fileno, self._drawn, self._modes, first)
        self._speak()

    def _hush(self) -> None:
        """What a library written in another language says on standard error must not be drawn over."""
        if self._errors is None and self._drawn != 2 and os.isatty(2):
            self._errors = os.dup(2)
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, 2)
            os.close(nowhere)

    def _speak(self) -> None:
        """Standard error as it was."""
        if self._errors is not None:
            os.dup2(self._errors, 2)
            os.close(self._errors)
            self._errors = None

    # Job control

    def _sigtstp_application(self, *_: object) -> None:
        """The shell wants the terminal."""
        self.pause(os.getpid())

    def _sigcont_application(self, *_: object) -> None:
        """Go on after a stop without notice: the shell may have set the terminal otherwise."""
        if self._active and self._auto_restart:
            self._loop.call_soon_threadsafe(self._take_again)

    def _take_again(self) -> None:
        wait_for_foreground(self.fileno, lambda: self._leaves)
        if self._active and not is_background(self.fileno):
            self.suspend_application_mode()
            self.resume_application_mode()
            self._app.refresh(layout=True)

    def pause(self, process: int = 0) -> None:
        """Stop until the shell lets the program go on. process: 0 for all of its job, as the key does.

        Where no shell could let it go on, the system ignores it.
        """
        active = self._active and self._auto_restart
        if active:
            self.suspend_application_mode()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
        os.kill(process, signal.SIGTSTP)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if active:
            self.resume_application_mode()
            self._app.refresh(layout=True)

    # Input

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except BaseException as error:
            with suppress(RuntimeError):  # the loop is closed: it is over anyway
                self._loop.call_soon_threadsafe(self._app.fail, error)

    def run_input_thread(self) -> None:
        """Read until the terminal is given back or gone."""
        while not self.exit_event.is_set():
            wait = LOOK_SECONDS
            if (deadline := self._input.deadline) is not None:
                wait = min(wait, max(0.0, deadline - time.monotonic()))
            data = self._read() if self._more.poll(wait * 1000 + 1) else b""
            if data is None:
                self._loop.call_soon_threadsafe(self._app.terminal_gone)
                return
            now = time.monotonic()
            tokens = self._input.feed(data, now) if data else self._input.tick(now)
            for message in self._reports.messages(tokens):
                self.process_message(message)

    def _read(self) -> bytes | None:
        """Everything that has come; None if there is no terminal any more.

        Of a paste that is not marked, the rest is waited for: in pieces it would be lines that were typed.
        """
        parts: list[bytes] = []
        size, plain = 0, True
        while size < MOST_AT_ONCE and not self.exit_event.is_set():
            try:
                part = os.read(self.fileno, READ_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                part = b""
            if not part:
                return b"".join(parts) or None
            parts.append(part)
            size += len(part)
            plain = plain and b"\x1b" not in part
            if not self._more.poll(REST_OF_PASTE_SECONDS * 1000 if plain and size > LONGEST_TYPED else 0):
                break
        return b"".join(parts)

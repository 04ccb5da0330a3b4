"""Running the interface from its first frame to the exit code, on every way out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from ..collector import settle_collector
from ..errors import UserError, fault
from ..terminals import is_background
from .app import TermchatApp
from .engines.model_slot import ModelSlot
from .terminal.driver import TerminalDriver

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""So long the engine's thread waits for the interpreter while the interface computes, after each step: the
interpreter's usual 5 ms are as long as a step.
"""

FAULT_SECONDS = 6.0
"""So long the program may take to end in order after a fault."""

FAILED = 1

DEADLY = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that end a program as it is. The terminal is given back first; what came is stored already."""


class OnSignal(Protocol):
    """Within its block the first signal calls `action`, and the second ends the process after `last`."""

    def __call__(
        self, action: Callable[[], object], last: Callable[[], object] | None = None
    ) -> AbstractContextManager[None]:
        """The block."""


def run(
    app: TermchatApp, on_signal: OnSignal, exit_code: Callable[[], int], say: Callable[[str], object]
) -> int:
    """Run the interface until the user leaves; the exit code.

    exit_code: asked at the end. say: tells the user a sentence, once the terminal is as it was.
    """

    def restore() -> None:
        if isinstance(app._driver, TerminalDriver):
            app._driver.restore()

    def die(number: int, _: object) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def give_up() -> None:
        restore()
        if app.fault is not None:
            say(fault(app.fault, app.log_file))
        os._exit(FAILED)

    def fault_began() -> None:
        guard = threading.Timer(FAULT_SECONDS, give_up)
        guard.daemon = True
        guard.start()

    async def vanish() -> None:
        with app.batch_update():
            await app.close_turns()
        app.store.close()
        os._exit(exit_code())

    def leave() -> None:
        if _terminal_is_ours():
            app.leave()
        else:  # what is still drawn on it, or set, would block the program for ever
            app.run_worker(vanish())

    def terminal_gone() -> None:
        """Nothing more can be read: as if the signal for it had come."""
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            leave()
        else:
            os.kill(os.getpid(), signal.SIGHUP)

    def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a task or a callback that nobody waits for."""
        error, message = context.get("exception"), str(context.get("message"))
        if isinstance(error, BaseException) and not message.startswith("Future "):
            app.fail(error)
        else:
            log.warning("%s", message, exc_info=error)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(unhandled)
        settled = asyncio.create_task(_keep_what_is_loaded(app.engines.default))

        def asked() -> None:
            """A signal asks for the end; the loop may be waiting for a terminal that takes nothing."""
            if isinstance(app._driver, TerminalDriver):
                app._driver.hurry()
            loop.call_soon_threadsafe(leave)

        with on_signal(asked, restore):
            try:
                await app.run_async(mouse=app.takes_mouse)
            except Exception as error:
                app.fault = app.fault or error
                log.exception("the interface failed")
                restore()
            if app.fault is not None:
                _close_store(app, say)
                say(fault(app.fault, app.log_file))
                sys.stdout.flush()
                os._exit(FAILED)  # what is left of the tasks may wait for what is closed
        settled.cancel()
        _close_store(app, say)
        if app.engines.loading:  # a load cannot be stopped half-way, and nothing is left to be saved
            sys.stdout.flush()
            os._exit(exit_code())

    app.failing, app.terminal_gone = fault_began, terminal_gone
    threading.excepthook = _log_thread
    for number in DEADLY:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, die)
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(main())
    return exit_code()


def _close_store(app: TermchatApp, say: Callable[[str], object]) -> None:
    app.store.close()
    if unsaved := app.conversations.saving.rescue(app.folders_of_last_resort):
        say(unsaved)


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None:
        log.error("the thread %s failed", failed.thread and failed.thread.name, exc_info=failed.exc_value)


def _terminal_is_ours() -> bool:
    """Whether it is still there, and no other program has it."""
    fd = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0
    try:
        termios.tcgetattr(fd)
    except termios.error:
        return False
    return not is_background(fd)


async def _keep_what_is_loaded(slot: ModelSlot) -> None:
    """Take everything that start-up made out of the collector's rounds: each would stop engine and screen."""
    with suppress(UserError):
        await slot.ready()
    settle_collector()

"""What the tests of the application share."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# What is drawn and where copies go depends on these; tests of that set their own.
os.environ["LC_ALL"] = "C.UTF-8"
if os.environ.get("TERM") == "linux":
    os.environ["TERM"] = "xterm-256color"
for name in ("TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
    os.environ.pop(name, None)

# The same examples in each run, however slow the machine is.
settings.register_profile(
    "suite", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("suite")


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Modes of files are those that most users have."""
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.fixture(scope="session", autouse=True)
def styles_parsed_once() -> Iterator[None]:
    """The full screen's styles are read once for all applications: it is a fifth of a start."""
    from textual.css.stylesheet import Stylesheet

    parse, parsed = Stylesheet.parse, defaultdict[object, dict[object, object]](dict)

    def parse_once(sheet: Any) -> None:
        sheet._parse_cache = parsed[tuple(sorted(sheet._variables.items()))]
        parse(sheet)
        sheet._parse_cache = {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "parse", parse_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def pilots_wait_for_messages() -> Iterator[None]:
    """A pilot's pause lasts until no widget has a message left, nor after a frame more.

    Textual's own waits until the processor has had nothing to do for 20 ms: a second while an engine works.
    """
    from textual.constants import MAX_FPS
    from textual.pilot import Pilot

    def at_rest(node: Any) -> bool:
        queue = node._message_queue
        return not node.is_running or (queue.empty() and bool(queue.ready_event._waiters))

    async def pause(pilot: Pilot[Any], delay: float | None = None) -> None:
        for seconds in (1 / MAX_FPS, 0) if delay is None else (delay,):
            await pilot._wait_for_screen()
            deadline = time.monotonic() + 1
            while delay is None and time.monotonic() < deadline:
                await asyncio.sleep(0)
                if all(map(at_rest, (pilot.app, *pilot.app.screen.walk_children(with_self=True)))):
                    break
            await asyncio.sleep(seconds)
        pilot.app.screen._on_timer_update()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pilot, "pause", pause)
        yield

import signal
from pathlib import Path

import pytest

# A shell starts background jobs with these ignored, and programs leave them so: tests of signals would hang.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default GGUF, fetched into the user's cache if it is not there."""
    from termchat.download import ensure
    from termchat.paths import Paths
    from termchat.registry import Registry

    return ensure(Registry.load(Paths.default()), "smollm2-135m")


@pytest.fixture(scope="session")
def count_text() -> str:
    """Anchor A1: the first 51 greedy tokens of the default model on `Count from 1 to 10.`"""
    return "\n".join(f"{i}. {i}" for i in range(1, 11))

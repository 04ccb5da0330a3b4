import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Kernels for GPUs run in Triton's interpreter, which has to be chosen before anything imports Triton.
os.environ["TRITON_INTERPRET"] = "1"

# Several processes run tests side by side: teams of torch's threads would wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

# Whatever a test forgets to set, no user's file is read or written, also by the programs that it starts: this
# run has a home of its own. Only the cache is shared, where the default model lies, and pip's settings, which
# may say how the network is reached.
PIP = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip" / "pip.conf"
if PIP.is_file():
    os.environ.setdefault("PIP_CONFIG_FILE", str(PIP))
HOME = tempfile.TemporaryDirectory(prefix="termchat-tests-", ignore_cleanup_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
os.environ["HOME"] = HOME.name
for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ.pop(name, None)

# A shell starts background jobs with these ignored, and programs leave them so: tests of signals would hang.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The whole suite goes to a process a core, as most tests use one; chosen files stay in this one."""
    option, cores = config.option, min(4, len(os.sched_getaffinity(0)))
    whole = config.args_source != pytest.Config.ArgsSource.ARGS
    if hasattr(config, "workerinput"):  # a worker would have workers of its own
        return
    if whole and cores > 1 and not option.usepdb and getattr(option, "numprocesses", 0) is None:
        option.numprocesses, option.dist = cores, "loadfile"


PROGRAMS = {"open_app", "terminal", "shell"}
"""Fixtures that start the whole application, in the process or on a terminal."""


TESTS = Path(__file__).parent
REAL = ("termchat", "engine")
"""Folders whose tests have real threads, processes, terminals and clocks: the others have no second try."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What starts the application is slow. A test of what is real may be tried once more, see `REAL`."""
    again = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if item.path.parent.name == "tui" and PROGRAMS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if again and any(item.path.is_relative_to(TESTS / folder) for folder in REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A second try is told, by name and with the reason of the first."""
    reports = terminalreporter.stats.get("rerun", [])
    if reports:
        terminalreporter.section("needed a second try: each is a bug of the test or of the product")
    for report in reports:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(crash.message if crash is not None else report.longrepr).partition("\n")[0]
        terminalreporter.line(f"{report.nodeid}: {said[:200]}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """A run with other chances."""
    parser.addoption("--seed", type=int, default=0, help="what is drawn at random depends on it (default: 0)")


@pytest.fixture(autouse=True)
def same_chances(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is drawn without a seed depends on `--seed` and the test's name: what passes once passes again."""
    drawn = random.Random(f"{request.config.getoption('seed')} {request.node.nodeid}")
    random.seed(drawn.getrandbits(64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.sampling_params.random_seed", lambda: drawn.getrandbits(53))
        yield


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default GGUF, fetched into the user's cache if it is not there."""
    from termchat.download import ensure
    from termchat.paths import Paths
    from termchat.registry import Registry

    return ensure(Registry.load(Paths.default()), "smollm2-135m")


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Makes this a machine with GPUs, see fake_gpus."""
    from fake_gpus import machines

    yield from machines(tmp_path, monkeypatch)

"""Whatever fails, wherever: every request gets exactly one final event, and the engine says that it failed.

The modules of the engine's threads are loaded a second time with every call in them made a place where a
fault can be put. Nobody lists these places: a new call is one more.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.abc
import importlib.util
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import cycle
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

MODULES = (
    "blocks", "chunking", "commands", "core", "logprobs", "metrics", "outbox", "preparation", "prompt",
    "request", "sampler", "sampling", "scheduler", "sequence", "service", "snapshot",
    "speculative.acceptance", "step_plan", "stream",
)  # fmt: skip
THREADS = ("engine", "prompt", "outbox")
REQUESTS = 64
KINDS = 1
"""Of faults at each place and run, drawn anew each time; 2 for both, which takes twice as long."""

BESIDE = cycle((False, True))
"""Whether a session's steps are computed beside the engine's thread."""

HANG = 120.0
"""Seconds after which something hangs; the time that it takes is printed."""


class InjectedError(Exception):
    pass


class InjectedPanic(BaseException):
    """As the tokenizer's library raises it: no Exception."""


class Sites:
    """Every call in the instrumented modules, and the fault that is put at one of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.hits: set[int] = set()
        self.armed: int | None = None
        self.kind: type[BaseException] = InjectedError

    def arm(self, site: int | None, kind: type[BaseException] = InjectedError) -> None:
        self.hits.clear()
        self.armed, self.kind = site, kind

    def __call__(self, site: int, function: Any) -> Any:
        """What is called at this site, unless a fault waits there."""
        if threading.current_thread().name in THREADS:
            self.hits.add(site)
            if site == self.armed:
                self.armed = None
                raise self.kind(self.names[site])
        return function


class Instrument(ast.NodeTransformer):
    """f(x) becomes __site__(number, f)(x), inside of functions."""

    def __init__(self, module: str, names: list[str]) -> None:
        self._module, self._names, self._depth = module, names, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._depth += 1
        node.body = [self.visit(statement) for statement in node.body]
        self._depth -= 1
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._depth:
            self._names.append(f"{self._module}.py:{node.lineno}: {ast.unparse(node):.80}")
            number = ast.Constant(len(self._names) - 1)
            self.generic_visit(node)
            node.func = ast.Call(ast.Name("__site__", ast.Load()), [number, node.func], [])
        else:
            self.generic_visit(node)
        return node


class Loader(SourceFileLoader):
    sites: Sites

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = Instrument(Path(path).stem, self.sites.names).visit(ast.parse(data))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__site__"] = self.sites
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, sites: Sites) -> None:
        self._sites = sites

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "engine" or name not in MODULES or path is None:
            return None
        loader = Loader(fullname, str(Path(path[0]) / f"{name.rpartition('.')[2]}.py"))
        loader.sites = self._sites
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """A second engine package, with its places for faults, in the place of the first."""
    sites = Sites()
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "engine"}
    finder = Finder(sites)
    sys.meta_path.insert(0, finder)
    try:
        for name in MODULES:
            importlib.import_module(f"engine.{name}")
        yield sites
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "engine"]:
            del sys.modules[name]
        sys.modules.update(kept)


class FailsLater:
    """A model whose steps fail once some tokens have come."""

    def __init__(self, model: Any, tokens: int = 100) -> None:
        self._model, self._left = model, tokens

    def load(self, config: Any) -> Any:
        loaded = self._model.load(config)
        launch = loaded.runner.launch

        def step(plan: Any, **how: Any) -> Any:
            if self._left <= 0:
                raise InjectedError("the model")
            self._left -= len(plan.samples())
            return launch(plan, **how)

        loaded.runner.launch = step
        return loaded


class Session:
    """One engine with 64 requests of every kind at the same time; `run` is it from its start to its end."""

    def __init__(self, tokenizer: Path, *, fails: bool = False) -> None:
        from engine.testing import ScriptedModel

        rng = random.Random(3)
        scripts = [[rng.randrange(256) for _ in range(rng.choice([1, 4]))] for _ in range(REQUESTS)]
        scripts[56:64] = [[65] * 4000] * 8  # these run until the engine is closed
        model = ScriptedModel(scripts, tokenizer, [257], context_length=2000, beside=next(BESIDE))
        self.model = FailsLater(model) if fails else model
        self.finals: list[list[Any]] = []
        self.answers: list[Any] = []
        self.state = ""
        self.opened = False

    def engine(self) -> Any:
        from engine import AsyncEngine, EngineConfig

        return AsyncEngine(
            EngineConfig(model=self.model, kv_blocks=80, block_size=16, prefill_chunk=512, max_waiting=50)
        )

    async def run(self, arm: Callable[[], None]) -> None:
        from engine import EngineError, Finished, Message, SamplingParams

        async def read(stream: Any) -> None:
            events = [event async for event in stream]
            self.finals.append([event for event in events if isinstance(event, Finished)])

        async def answer(call: Any) -> None:
            try:
                self.answers.append(await call)
            except EngineError as error:
                self.answers.append(error)

        engine = self.engine()
        async with asyncio.timeout(HANG):
            async with engine:
                self.opened = True
                arm()
                streams = []
                for number in range(REQUESTS):
                    params = SamplingParams(
                        temperature=0,
                        logprobs=2 if number % 30 == 0 else None,
                        stop=("qq",) if number % 5 == 0 else (),
                        repetition_penalty=1.1 if number % 30 == 0 else 1.0,
                    )
                    prompts = (f"text {number}", [Message("user", "Hi")], [65 + number % 20] * 20, "x" * 9000)
                    which = 3 if number in (5, 6) else 2 if number >= 56 else number % 3
                    streams.append(engine.generate(prompts[which], params))
                calls = [
                    engine.tokenize("some text"),
                    engine.tokenize([Message("user", "Hi")]),
                    engine.score([65] * 20),
                    engine.score([65] * 20, chosen=True),
                    engine.bandwidth_peak(),
                    engine.audit(),
                ]
                tasks = [asyncio.create_task(answer(call)) for call in calls]
                engine.focus(streams[9])
                streams[10].abort()
                streams[13].abort()
                readers = [asyncio.create_task(read(stream)) for stream in streams]
                await asyncio.gather(*readers[:56], *tasks)
            await asyncio.gather(*readers)
        self.state = engine.snapshot().state

    def check(self, site: str) -> None:
        """What holds whatever happened."""
        assert [len(finals) for finals in self.finals] == [1] * REQUESTS, site
        assert len(self.answers) == 6, site
        codes = [final.error.code for (final,) in self.finals if final.error is not None]
        assert set(codes) <= {"engine_failed", "request_failed", "prompt_too_long"}, (site, codes)
        assert codes.count("request_failed") <= 1, site
        assert self.state in ("closed", "failed"), site
        assert ("engine_failed" in codes) <= (self.state == "failed"), site


@pytest.fixture(autouse=True)
def _small_pieces(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a text of some thousand characters is a long one."""
    prompt = importlib.import_module("engine.prompt")
    for name, value in (("WHOLE", 1000), ("PIECE", 2000), ("SLACK", 10)):
        monkeypatch.setattr(prompt, name, value)
    monkeypatch.setattr("logging.Logger._log", lambda *arguments, **more: None)
    testing = importlib.import_module("engine.testing")
    monkeypatch.setattr(testing, "load_tokenizer", cache(testing.load_tokenizer))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in THREADS]


def recorded(sites: Sites, session: Session) -> tuple[set[int], set[int]]:
    """Sites met while the session loads, and after."""
    loading: set[int] = set()

    def opened() -> None:
        loading.update(sites.hits)
        sites.arm(None)

    sites.arm(None)
    asyncio.run(session.run(opened))
    session.check("none")
    return loading, set(sites.hits)


def inject(sites: Sites, numbers: set[int], new: Callable[[], Session]) -> None:
    """A session with a fault of each kind at each of these sites."""
    longest, fired = 0.0, 0
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    for number in sorted(numbers):
        for kind in rng.sample([InjectedError, InjectedPanic], KINDS):
            session, started = new(), time.monotonic()
            try:
                asyncio.run(session.run(lambda n=number, kind=kind: sites.arm(n, kind)))  # type: ignore[misc]
            except TimeoutError:
                pytest.fail(f"{kind.__name__} at {sites.names[number]}: somebody waits for ever")
            longest = max(longest, time.monotonic() - started)
            fired += sites.armed is None
            session.check(f"{kind.__name__} at {sites.names[number]}")
            assert not wait_for_threads(), sites.names[number]
    print(f"{len(numbers)} sites, {fired} faults, longest session {longest:.2f} s")
    assert fired > 0.5 * KINDS * len(numbers), "a fault is hardly ever met: the sessions differ too much"


def wait_for_threads() -> list[str]:
    deadline = time.monotonic() + HANG
    while threads() and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads()


@pytest.mark.slow
def test_a_fault_at_any_call_of_the_engines_threads_leaves_nobody_waiting(
    sites: Sites, tiny_tokenizer: Path
) -> None:
    _, serving = recorded(sites, Session(tiny_tokenizer))
    print(len(sites.names), "calls,", len(serving), "of them met")
    inject(sites, serving, lambda: Session(tiny_tokenizer))


def test_a_fault_while_a_fault_is_dealt_with_leaves_nobody_waiting(
    sites: Sites, tiny_tokenizer: Path
) -> None:
    # Which calls are met depends on timing, too: those that are met whenever a session fails, and only then.
    usual: set[int] = set().union(*(recorded(sites, Session(tiny_tokenizer))[1] for _ in range(4)))
    failing: list[set[int]] = []
    for _ in range(4):
        session = Session(tiny_tokenizer, fails=True)
        failing.append(recorded(sites, session)[1])
        assert session.state == "failed"
    only = set.intersection(*failing) - usual
    assert only
    inject(sites, only, lambda: Session(tiny_tokenizer, fails=True))


@pytest.mark.slow
def test_a_fault_at_any_call_while_loading_is_one_error(sites: Sites, tiny_tokenizer: Path) -> None:
    """It is raised by `async with`, and nothing stays: no thread, no state that looks well."""
    from engine import EngineError

    loading, _ = recorded(sites, Session(tiny_tokenizer))
    ended = 0
    for number in sorted(loading):
        for kind in (InjectedError, InjectedPanic):
            session = Session(tiny_tokenizer)
            engine = session.engine()

            async def open_and_leave(engine: Any = engine) -> None:
                async with asyncio.timeout(HANG), engine:
                    await engine.generate("text").result()

            sites.arm(number, kind)
            try:
                asyncio.run(open_and_leave())
            except EngineError:
                ended += 1
                assert engine.snapshot().state == "failed", sites.names[number]
            assert sites.armed is None, sites.names[number]
            assert not wait_for_threads(), sites.names[number]
    print(f"{len(loading)} sites, {ended} loads ended")
    assert ended > len(loading), "most of what fails in a load ends it"

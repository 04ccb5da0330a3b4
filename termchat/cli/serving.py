"""From a model's name to a running engine, with every error as one that the command line knows."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import EngineConfig, EngineError, SamplingParams, reserve_memory

from ..collector import resume_collector
from ..constraints import check
from ..errors import UserError
from ..files import PathError
from ..logs import start_logging
from ..resolved_model import ResolvedModel
from ..sampling import sampling_params
from ..setup import Setup, engine_config
from ..thinking import ThinkingStyle, thinking_style
from .console import Console
from .download import downloaded
from .errors import CliError, engine_failure
from .progress import ProgressLine

if TYPE_CHECKING:
    from engine import Engine

PATIENCE_SECONDS = 1.0
"""After so long a load says how far it is."""

REDRAW_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that lies on this machine, and how its engine is to be set up. flags: what options set."""

    setup: Setup
    model: ResolvedModel
    config: EngineConfig
    flags: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """How to find the model again: its registered name, or its path."""
        return self.model.reference

    def failure(self, error: EngineError, mend: str | None = None) -> CliError:
        """An error of this model's engine, with the setting that it is about. mend: what helps against it."""
        failure = engine_failure(error, self.model.name, mend, self.config.template)
        return CliError(failure.code, f"{failure}{self.setup.config.blamed(str(failure), self.flags)}")


class Serving(NamedTuple):
    """A loaded model. thinking: how it thinks, if it does."""

    engine: Engine
    choice: Choice
    load_ms: float
    thinking: ThinkingStyle

    @property
    def template_vars(self) -> Mapping[str, Any]:
        """For the chat template."""
        return self.choice.model.template_vars

    async def bandwidth_peak(self) -> float | None:
        """The best measured peak of the memory in GB/s, of this run and earlier ones; None: there is none."""
        from ..peaks import Peaks

        return await Peaks(self.choice.setup.paths.peaks).measure(self.engine)

    def params(self, flags: Mapping[str, Any]) -> SamplingParams:
        """Sampling settings of a request. CliError(usage)."""
        try:
            config = self.choice.setup.config
            return sampling_params(flags, config, self.choice.model, self.engine.info.defaults)
        except ValueError as error:
            raise CliError("usage", str(error)) from error


def load_setup(console: Console) -> Setup:
    """The user's settings and models; what is wrong in their files is said on standard error."""
    setup = Setup.load()
    with suppress(PathError):  # a home that cannot be written is mentioned once, where the reply is saved
        start_logging(setup.paths.log_file, str(setup.config.options["log_level"]))
    for warning in setup.warnings:
        console.messages.note(warning)
    return setup


def check_flags(flags: Mapping[str, Any]) -> None:
    """Refuse sampling options that are out of range, or can't be honoured, before anything is loaded.

    CliError(usage), ConstraintError.
    """
    try:
        SamplingParams(**flags)
    except ValueError as error:
        raise CliError("usage", str(error)) from error
    check(flags)


def choose(
    console: Console, setup: Setup, name: str | None, *, yes: bool, flags: Mapping[str, Any]
) -> Choice:
    """Find the model, downloading it if that is wanted. CliError, UserError.

    name: None takes the default, by the user's settings.
    """
    config = setup.config
    try:
        model = downloaded(console, setup.registry, setup.default_model if name is None else name, yes=yes)
    except UserError as error:
        if name is None and "model" in config.given:
            error.args = (f"{error}{config.said_by(['model'])}",)
        raise
    try:
        return Choice(setup, model, engine_config(setup.registry, model, config, flags), tuple(flags))
    except ValueError as error:
        raise CliError("usage", f"{error}{config.blamed(str(error), flags)}") from error


def sized(choice: Choice, sequences: int) -> Choice:
    """The choice with an engine that computes this many conversations at once, and lets as many more wait."""
    config = replace(
        choice.config,
        max_sequences=sequences,
        max_batch_tokens=max(choice.config.max_batch_tokens, sequences),
        max_waiting=max(choice.config.max_waiting, sequences),
    )
    return replace(choice, config=config)


def warn_if_slow(console: Console, served: Serving) -> None:
    """Say it when the backend is not the fast one, although nobody asked for another."""
    config = served.choice.config
    if config.ranks > 1:  # the engine's own note says so
        return
    if (config.backend, config.dtype) == ("auto", "auto") and served.engine.snapshot().backend == "reference":
        slow = "replies come slowly: the reference backend computes them, not the compiled one"
        console.messages.note(f"{slow}; `termchat doctor` says why")


@asynccontextmanager
async def _showing_progress(console: Console, engine: Engine, name: str) -> AsyncIterator[None]:
    """On a terminal, a line that says how much of the model is loaded, if that takes long; elsewhere a note
    where it takes minutes.
    """
    import asyncio  # by now the engine has it

    line = ProgressLine(console.messages, every=None)

    async def show() -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        while True:
            snapshot = engine.snapshot()
            if console.messages.draws:
                line.show(f"loading {name}: {snapshot.loading or f'{snapshot.loaded:.0%}'}", at_once=True)
            elif snapshot.loading:
                console.messages.note(snapshot.loading)
                return
            await asyncio.sleep(REDRAW_SECONDS)

    task = asyncio.create_task(show())
    try:
        yield
    finally:
        task.cancel()
        line.end()


@asynccontextmanager
async def serving(
    console: Console, choice: Choice, *, chat: bool = False, constrained: bool = False
) -> AsyncIterator[Serving]:
    """The loaded model; chat: it is to be given messages; constrained: its replies are to keep to something.

    CliError: it cannot be loaded, or cannot chat.

    A signal leaves at once unless a request says otherwise: a load cannot be stopped half-way, and there is
    nothing to save.
    """
    reserve_memory(choice.config)
    from engine import AsyncEngine  # numpy and more, while the memory is made ready

    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # a library that prints must not spoil a reply
        stack.enter_context(console.signals.calling(console.signals.leave_at_once))
        try:
            engine = AsyncEngine(choice.config, chat=chat, constrained=constrained)
            async with _showing_progress(console, engine, choice.model.name):
                await stack.enter_async_context(engine)
            load_ms = (time.perf_counter() - started) * 1e3
            variables = choice.model.template_vars
            thinking = await thinking_style(engine, variables) if chat else ThinkingStyle()
        except EngineError as error:
            logging.getLogger(__name__).warning("%s: %s", choice.model.path, error)
            damage = None
            if error.code == "model_invalid":
                from ..download import mend

                damage = mend(choice.setup.registry, choice.model)
            raise choice.failure(error, damage) from error
        for note in engine.info.notes:
            console.messages.note(note)
        resume_collector()
        if chat and not engine.info.has_chat_template:
            console.messages.note(f"{choice.model.name} has no chat template; the form of ChatML is used")
        yield Serving(engine, choice, load_ms, thinking)

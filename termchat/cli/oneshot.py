"""One prompt, one reply, for people and for scripts."""

from __future__ import annotations

from engine import reserve_memory

from ..constraints import constrains
from ..errors import UserError
from ..messages import StoredConversation
from .console import Console
from .errors import OK, failure_of
from .presenters import JsonLinesPresenter, JsonPresenter, PlainPresenter, Presenter
from .recording import Recording
from .request import Request, model_of, open_recording
from .serving import Choice, check_flags, choose, load_setup, serving, warn_if_slow


def answer(console: Console, request: Request) -> int:
    """Answer a prompt on standard output; the exit code. Raises UserError, ReaderClosed, Interrupted."""
    presenter = _presenter(console, request)
    try:
        console.output.check()
        check_flags(request.sampling)
        setup = load_setup(console)
        recording, past = open_recording(console, setup.paths.database, request)
        with recording:
            name = model_of(console, setup.registry, request, past)
            choice = choose(console, setup, name, yes=request.yes, flags=request.engine)
            reserve_memory(choice.config)
            import asyncio  # as all that takes long: the memory is made ready meanwhile

            return asyncio.run(_answer(console, request, presenter, choice, recording, past))
    except UserError as error:
        presenter.failed(failure_of(error))
        raise


async def _answer(
    console: Console,
    request: Request,
    presenter: Presenter,
    choice: Choice,
    recording: Recording,
    past: StoredConversation | None,
) -> int:
    from .turn import Turn, take_turn

    sampling = request.sampling_over(past)
    constrained = constrains(sampling)
    async with serving(console, choice, chat=not request.raw, constrained=constrained) as served:
        warn_if_slow(console, served)
        turn = Turn(
            said=request.text,
            params=served.params(sampling),
            system=request.system,
            raw=request.raw,
            measure=request.stats or request.form != "plain",
        )
        reply = await take_turn(console, served, presenter, recording, turn)
        if request.stats:
            console.messages.text(reply.stats())
    received = console.signals.received
    return OK if received is None else 128 + received


def _presenter(console: Console, request: Request) -> Presenter:
    if request.form == "json":
        return JsonPresenter(console)
    if request.form == "jsonl":
        return JsonLinesPresenter(console, stream=request.stream)
    return PlainPresenter(console, stream=request.stream)

"""A model on trial for `termchat doctor`: loaded, measured, and why it is slower than it could be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..console import Console
from ..errors import EXIT_CODES, USAGE
from ..options import DRAFT_OPTIONS, ENGINE_OPTIONS, given
from .report import Report

if TYPE_CHECKING:
    from engine import EngineConfig

    from ...setup import Setup


def try_model(report: Report, console: Console, setup: Setup, values: dict[str, Any]) -> None:
    """Load the model and measure."""
    import asyncio

    from ..serving import choose, serving

    name = values["model"] or setup.default_model
    try:
        setup.registry.resolve(name)
    except UserError as error:
        if not values["yes"]:
            report.facts["model"] = None
            report.problem("no model was tried", str(error), "download it, or name another one with --model")
            return

    if (damage := _damage(setup, name)) is not None:
        mend = f"run: termchat models pull {name}"
        report.problem(f"the file of the model {name} is damaged", damage, mend, broken=True)
        return

    async def measure() -> None:
        async with serving(console, choice) as served:
            peak = await served.bandwidth_peak()
            snapshot = served.engine.snapshot()
            report.facts |= {
                "model": choice.model.name,
                "backend": snapshot.backend,
                **({"parallel": snapshot.ranks} if snapshot.ranks else {}),
                "exact": snapshot.exact,
                "replaced": list(snapshot.replaced),
                "load_ms": served.load_ms,
                "memory_bytes": snapshot.memory_bytes,
                "draft": snapshot.draft or None,
                "draft_memory_bytes": snapshot.draft_memory_bytes,
                "bandwidth_peak_gbs": peak,
                "bandwidth_peak_quiet": served.engine.peak is None or served.engine.peak.quiet,
                "ceiling_tps": peak * 1e9 / snapshot.bytes_per_token
                if peak and snapshot.bytes_per_token
                else None,
            }

    try:
        flags = given(values, (*ENGINE_OPTIONS, *DRAFT_OPTIONS, "template"))
        choice = choose(console, setup, name, yes=values["yes"], flags=flags)
        asyncio.run(measure())
    except UserError as error:
        wrong_option = EXIT_CODES.get(getattr(error, "code", "")) == USAGE
        mend = "correct that option or setting" if wrong_option else "name another one with --model"
        report.problem(f"the model {name} cannot be used", str(error), mend, broken=True)
        return
    _choice(report, choice.config)
    if report.facts["replaced"]:
        report.problem(
            f"replies are slower than this GPU could give them: plain torch computes "
            f"{', '.join(report.facts['replaced'])}",
            "these GPU kernels do not compute here what they should",
            "update the NVIDIA driver, torch and triton; the log has the details",
        )
    if not report.facts["exact"]:
        report.problem(
            "tokens can depend on what else is in the batch",
            f"the backend {report.facts['backend']} computes a row differently in batches of other sizes"
            + ("" if choice.config.exact else ", as --no-exact or engine.exact asks for"),
            "use --backend reference where that matters" if choice.config.exact else "leave that out",
        )


def _damage(setup: Setup, name: str) -> str | None:
    """What is wrong with a registered model's file. The others' are for `termchat models verify`."""
    from ...download import check

    try:
        checked = check(setup.registry, name)
    except UserError:  # no registered model, or not here: said where it is loaded
        return None
    return checked.reason if checked.state == "damaged" else None


def _choice(report: Report, config: EngineConfig) -> None:
    """What keeps a faster backend from being used, if the user has not chosen this one."""
    from dataclasses import replace

    from engine import select_backend

    found = select_backend(replace(config, backend="auto"))
    for note in select_backend(config).notes:
        if not found.why or found.why not in note:
            report.problem(
                "an option is not followed", note, "leave it out, or give it what this machine has"
            )
    if report.facts["backend"] != "reference" or config.device == "mps":
        return
    what = "replies are slower than this machine could give them: the reference backend computes"
    if config.backend == "reference":
        report.problem(what, "it was asked for", "leave --backend and the setting engine.backend at auto")
    elif found.why:
        report.problem(what, found.why, found.mend)

"""`termchat doctor`: what this machine offers, what is used of it, and what is wrong."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ..units import number, size
from .console import Console
from .errors import EXIT_CODES, FAILED, OK, USAGE, CliError
from .options import (
    DRAFT_OPTIONS,
    ENGINE_OPTIONS,
    SectionedCommand,
    draft_options,
    engine_options,
    given,
    json_option,
    model_options,
    template_option,
)

if TYPE_CHECKING:
    from engine import EngineConfig

    from ..setup import Setup

LIBRARIES = ("torch", "numpy", "tokenizers", "textual", "safetensors", "gguf")
"""Without these little works."""

INSTRUCTION_SETS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimd",
)
"""Names as /proc/cpuinfo has them; asimd is aarch64's."""


@dataclass(slots=True)
class Report:
    """Facts by name, and what is wrong or worse than it could be: what, why, and how to mend it."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)
    broken: bool = False

    def problem(self, what: str, why: str, mend: str, *, broken: bool = False) -> None:
        """Note something; broken: termchat cannot do its work like this."""
        self.problems.append({"what": what, "why": why, "mend": mend})
        self.broken = self.broken or broken


@click.command(cls=SectionedCommand)
@model_options
@json_option
@engine_options
@draft_options
@template_option
@click.pass_obj
def doctor(console: Console, /, **values: Any) -> int:
    """Check the installation: versions, device, speed of the memory, model files, stored conversations.

    Exit code 1 if something is broken; what is merely slower than it could be is listed.
    """
    from .serving import load_setup

    report = Report()
    setup = load_setup(console)
    _machine(report)
    _gpus(report, setup, given(values, ENGINE_OPTIONS))
    _files(report, setup)
    _model(report, console, setup, values)
    if values["as_json"]:
        console.print_json({**report.facts, "problems": report.problems})
    else:
        console.print_table([[f"{name}:", _shown(value)] for name, value in report.facts.items()])
        for problem in report.problems:
            console.output.write(
                f"\n{problem['what']}\n  why:  {problem['why']}\n  mend: {problem['mend']}\n"
            )
        if not report.problems:
            console.output.write("\nall is well\n")
    return FAILED if report.broken else OK


def _machine(report: Report) -> None:
    from kernels.machine import processor, usable_cpus

    report.facts |= {
        "termchat": _version("termchat"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "instructions": [name for name in INSTRUCTION_SETS if name in _cpu("flags", "Features").split()],
        "processors": usable_cpus(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }
    for name, version in report.facts["libraries"].items():
        if version is None:
            report.problem(
                f"{name} is not installed",
                "it belongs to termchat",
                "pip install --force-reinstall termchat",
                broken=True,
            )


def _files(report: Report, setup: Setup) -> None:
    from ..store import Store, StoreDamagedError

    paths = setup.paths
    report.facts |= {
        "settings": str(paths.config_file),
        "database": str(paths.database),
        "log": str(paths.log_file),
    }
    for warning in setup.warnings:
        report.problem(warning, "the file has an error", "correct the line, or remove it")
    try:
        with Store(paths.database) as store:
            report.facts["conversations"] = len(store.list_conversations())
            notice, broken = store.notice, False
    except UserError as error:
        notice, broken = str(error), isinstance(error, StoreDamagedError)
    if notice is not None:
        mend = "as the reason says; --no-save does without"
        report.problem("conversations are not saved", notice, mend, broken=broken)
    models = [status for status in setup.registry.list_models() if status.path is not None]
    report.facts["models"] = {status.entry.name: str(status.path) for status in models}


def _model(report: Report, console: Console, setup: Setup, values: dict[str, Any]) -> None:
    """Load the model and measure."""
    import asyncio

    from .serving import choose, serving

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
    from ..download import check

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


def _gpus(report: Report, setup: Setup, flags: dict[str, Any]) -> None:
    """Every card, with the reason why it is used or not; those that nobody has set aside are problems."""
    from engine import EngineConfig, list_gpus, select_backend

    try:
        gpus = list_gpus(select_backend(EngineConfig(model="", **{**setup.config.engine, **flags})))
    except ValueError as error:
        raise CliError("usage", str(error)) from error
    report.facts["gpus"] = [card._asdict() for card in gpus.cards]
    if gpus.driver:
        report.facts["libraries"]["driver"] = gpus.driver
    for card in gpus.cards:
        if not card.used and not card.wanted:
            report.problem(f"the GPU {card.name} is not used", card.why, card.mend)
        if card.memory_errors:
            report.problem(
                f"the memory of the GPU {card.name} is faulty",
                f"it had {card.memory_errors} errors that could not be corrected since it was last reset",
                "reset it (nvidia-smi --gpu-reset) or restart the machine; if they come again it is broken",
            )


def _cpu(*names: str) -> str:
    """A field of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.strip() in names), "")


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _card(card: dict[str, Any]) -> str:
    memory = f", {size(card['free'])} of {size(card['total'])} free" if card["total"] else ""
    place = f"{card['device']} " if card["device"] else ""
    state = "used" if card["used"] else f"not used: {card['why']}; {card['mend']}"
    return f"{place}{card['name']} {card['uuid']}{memory}, {state}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item or 'missing'}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            return "; ".join(map(_card, value))
        return " ".join(value) or "none"
    return number(value) if isinstance(value, float) else "not known" if value is None else str(value)

"""What `termchat plan` says of a model on one machine, or on many: in words, as a table, as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.planning import ACCEPTANCE, DRAFT_COST, Estimate, estimate, faster, with_draft

from ..cells import columns
from ..config import Config
from ..roofline_plot import Mark, roofline
from ..units import count, number, percent, rate, size
from .console import Console

if TYPE_CHECKING:
    from engine import MemoryPlan
    from engine.data_sheets import Machine
    from engine.workload import Workload

PLOT_ROWS = 12
WIDEST_PLOT = 76


class Planned(NamedTuple):
    """What was asked for. lighter: the model with fewer bits, by their names. tokens: of a conversation.

    machines: one, or a table of them. memory: the engine's own plan, of this machine alone; None elsewhere
    and without a model. draft: a model that guesses. window: its guesses a step, None if they adapt.
    """

    name: str
    workload: Workload
    lighter: Mapping[str, Workload]
    machines: Sequence[Machine]
    tokens: int
    concurrency: int
    config: Config
    memory: MemoryPlan | None = None
    draft: Workload | None = None
    window: int | None = None

    @property
    def in_memory(self) -> Workload:
        """What has to fit."""
        return with_draft(self.workload, self.draft)

    def estimate(self, machine: Machine) -> Estimate:
        """The model on one of the machines. Here as many fit as the engine has blocks for."""
        found = estimate(self.in_memory, machine, self.concurrency, self.tokens)
        if self.memory is None:
            return found
        fits = self.memory.conversations(self.tokens) if self.memory.nbytes <= self.memory.free_bytes else 0
        return replace(found, conversations=fits, cards=1 if fits >= self.concurrency else None)

    def faster(self, machine: Machine) -> dict[str, float]:
        """How many times as fast it would be there with what."""
        return faster(self.workload, self.lighter, machine, self.tokens, self.draft, self.window)


def report(console: Console, planned: Planned) -> list[str]:
    """What fits, how fast it is at most, and the roofline or the table."""
    lines = _sizes(planned) if planned.memory is None else _here(planned, planned.memory)
    if len(planned.machines) > 1:
        return [*lines, *_table(planned)]
    width = shutil.get_terminal_size((80, 24)).columns if console.output.is_terminal else 80
    return [*lines, *_one(planned, planned.machines[0], width)]


def _sizes(planned: Planned) -> list[str]:
    """What the model takes anywhere."""
    load = planned.workload
    read = load.decode(1, 0).nbytes
    active = f", of which a token reads {size(read)}" if load.traffic.expert_bytes else ""
    assumed = f"; {load.shape}" if load.shape else ""
    draft = (
        "" if planned.draft is None else f", draft {planned.draft.name} {size(planned.draft.weight_bytes)}"
    )
    both = planned.in_memory
    whole = size(both.conversation_bytes(planned.tokens))
    return [
        f"{planned.name}: weights {size(load.weight_bytes)} ({load.quantization}){active}{draft}{assumed}",
        f"a conversation of {planned.tokens} tokens takes {whole}, {size(both.kv_bytes)} a token",
    ]


def _here(planned: Planned, found: MemoryPlan) -> list[str]:
    """What is taken of this machine's memory."""
    left = found.free_bytes - found.nbytes
    active, parallel = "", f" in parallel ({found.ranks})" if found.ranks else ""
    if found.active_bytes < found.weight_bytes:
        active = f", of which a token takes {size(found.active_bytes)}"
    draft = f", draft {found.draft} {size(found.draft_weight_bytes)}" if found.draft else ""
    return [
        f"{planned.name}{parallel}: weights {size(found.weight_bytes)} ({found.quantization}){active}{draft}",
        f"KV cache {size(found.kv_bytes)}: {found.blocks} blocks of {found.block_size} tokens, "
        f"{size(found.kv_bytes_per_token)} a token",
        f"{found.conversations(planned.tokens)} conversations of {planned.tokens} tokens fit at once; "
        f"one can have {found.context_length}",
        f"{size(found.free_bytes)} are free now; "
        + (f"{size(left)} stay free" if left >= 0 else f"{size(-left)} are missing"),
    ]


def _one(planned: Planned, machine: Machine, width: int) -> list[str]:
    """One machine: what it is, what fits, how fast, what would help, and the roofline."""
    found = planned.estimate(machine)
    said = [f"{rate(machine.bandwidth / 1e9)} GB/s"] if machine.bandwidth else []
    speed = machine.int8 if machine.kind == "here" and planned.workload.packed else machine.bf16
    if speed:
        said.append(f"{number(speed / 1e12, 1 if speed >= 1e13 else 2)} T operations/s")
    lines = [f"{machine.name}: {', '.join([size(machine.memory), *said])} [{machine.source}]"]
    if planned.memory is None:
        lines.append(_fits(planned, found))
    if found.single is None or found.batch is None:
        return [*lines, "how fast it reads its memory is not known, so neither is how fast a model can be"]
    limit = f"the limit is {found.limit}" if machine.bf16 or machine.int8 else "by its memory alone"
    lines.append(
        f"at most {rate(found.single)} tokens/s for one conversation, "
        f"{rate(found.batch)} for {planned.concurrency} together ({limit})"
        + (f"; prompts {count(found.prefill)} tokens/s" if speed else "")
    )
    draft = "a draft a tenth its size" if planned.draft is None else f"the draft {planned.draft.name}"
    words = {
        "draft": f"{draft}, right in {percent(ACCEPTANCE)}",
        "batch of 8": "8 conversations, all together",
    }
    assert DRAFT_COST == 0.1, "as the words say"
    gains = [f"{words.get(what, what)}: {number(times)} x" for what, times in planned.faster(machine).items()]
    lines.append(f"faster than one conversation alone by {'; '.join(gains)}")
    marks = [Mark(point.what, point.intensity) for point in found.points]
    assert machine.bandwidth, "points need one"
    ascii = planned.config.ascii
    plot = roofline(machine.bandwidth, speed, marks, min(width, WIDEST_PLOT), PLOT_ROWS, ascii=ascii)
    return [*lines, "", *plot] if plot else lines


def _fits(planned: Planned, found: Estimate) -> str:
    asked = f"{planned.concurrency} conversations of {planned.tokens} tokens"
    if found.cards == 1:
        return f"{asked} fit; there is room for {found.conversations}"
    if found.cards is not None:
        return f"{asked} need {found.cards} of them, which have room for {found.conversations}"
    if found.machine.kind == "gpu":
        return f"{asked} do not fit into 8 of them, which have room for {found.conversations}"
    return f"{asked} do not fit; there is room for {found.conversations}"


def _table(planned: Planned) -> list[str]:
    """All machines, and which of them is the least that will do."""
    many = planned.concurrency
    rows = [["MACHINE", "MEMORY", "GB/S", "NEEDED", "FIT", "ONE tok/s", f"{many} tok/s", "LIMIT"]]
    estimates = [planned.estimate(machine) for machine in planned.machines]
    for found in estimates:
        machine = found.machine
        rows.append(
            [
                machine.name,
                f"{number(machine.memory / 1e9, 0)} GB",
                number((machine.bandwidth or 0) / 1e9, 0),
                "too small" if found.cards is None else str(found.cards),
                count(found.conversations),
                rate(found.single) if found.cards else "",
                rate(found.batch) if found.cards else "",
                (found.limit or "") if found.cards else "",
            ]
        )
    asked = f"{many} conversations of {planned.tokens} tokens"
    alone = [found for found in estimates if found.cards == 1 and found.machine.kind == "gpu"]
    several = [found for found in estimates if found.cards and found.machine.kind == "gpu"]
    if alone:
        best = min(alone, key=lambda found: (found.machine.memory, found.machine.bandwidth or 0))
        answer = f"the smallest of these GPUs that holds {asked} is the {best.machine.name}"
    elif several:
        best = min(several, key=lambda found: (found.cards or 0, found.machine.memory))
        answer = f"no single one of these GPUs holds {asked}; {best.cards} x {best.machine.name} do"
    else:
        answer = f"not even eight of any of these GPUs hold {asked}"
    return [*columns(rows), answer]


def as_json(planned: Planned) -> dict[str, Any]:
    """The same figures for programs; what is not known is null."""
    load, memory = planned.workload, planned.memory
    found: dict[str, Any] = {
        **({} if memory is None else asdict(memory)),
        "model": planned.name,
        "tokens": planned.tokens,
        "concurrency": planned.concurrency,
        "conversation_bytes": planned.in_memory.conversation_bytes(planned.tokens),
        "assumed": load.shape or None,
    }
    if memory is None:
        sizes = {"weight_bytes": load.weight_bytes, "kv_bytes_per_token": load.kv_bytes}
        found |= {"quantization": load.quantization, **sizes, "context_length": load.context_length}
        if planned.draft is not None:
            found |= {"draft": planned.draft.name, "draft_weight_bytes": planned.draft.weight_bytes}
    else:
        found["conversations"] = memory.conversations(planned.tokens)
    found["machines"] = [_machine(planned, planned.estimate(machine)) for machine in planned.machines]
    return found


def _machine(planned: Planned, found: Estimate) -> dict[str, Any]:
    machine = found.machine
    return {
        "name": machine.name,
        "kind": machine.kind,
        "memory_bytes": machine.memory,
        "bandwidth_gbs": None if machine.bandwidth is None else machine.bandwidth / 1e9,
        "bf16_tflops": None if machine.bf16 is None else machine.bf16 / 1e12,
        "int8_tops": None if machine.int8 is None else machine.int8 / 1e12,
        "source": machine.source,
        "cards": found.cards,
        "conversations": found.conversations,
        "single_tps": found.single,
        "batch_tps": found.batch,
        "prefill_tps": found.prefill,
        "limit": found.limit,
        "faster": planned.faster(machine),
        "points": [
            {"what": point.what, "operations_a_byte": point.intensity, "operations_a_second": point.rate}
            for point in found.points
        ],
    }

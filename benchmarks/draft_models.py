"""Drafts from a model: measured speed against the formula of arXiv 2211.17192, and what they cost in vain.

    python benchmarks/draft_models.py MODEL.gguf FOLDER [--tokens 64] [--rounds 2] [--plot FILE.svg]

MODEL is the default model. FOLDER takes two files of random weights (1.3 GB), made once: a target, and a
draft model with a tenth of its weights. Whether a draft is right is drawn: so many places of the reply as
the set chance says, at random, are guessed right whenever their turn comes. So passes of the draft model
cost what they cost, and the acceptance is known.

With acceptance a, k drafts a step, a pass of the draft model that takes c of a plain step, and a step of
k + 1 rows that takes v of one, the expected factor is (1 - a^(k + 1)) / (1 - a) / (k c + v). The paper has
v = 1, as where the weights are all that takes time. v is measured without passes, with nothing accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from formats import vocabulary
from random_models import Shape, write_model

from engine import AsyncEngine, EngineConfig, SamplingParams
from engine.model import LoadedModel, load_model
from engine.speculative.draft_model import ModelDrafter
from engine.speculative.drafter import Pass
from engine.step_plan import StepPlan

TARGET = Shape("target", "llama", 2048, 16, 32, 8, 64, 8192)
DRAFT = Shape("draft", "llama", 640, 16, 10, 2, 64, 1792)
WIDEST = 8
WINDOWS = (1, 2, 3, 4, 6)
CHANCES = (0.5, 0.8, 0.9)
PROMPT = list(range(1000, 1032))


class Drawn:
    """A drafter whose guesses are right with a set chance. model: its passes are computed; None: a pass takes
    `cost` seconds. window: drafts a step at most, 0 for none.
    """

    name = "drawn"
    bytes_per_token = memory_bytes = 0

    def __init__(self, model: ModelDrafter | None = None) -> None:
        self.model = model
        self.cost = 0.0
        self.window = 0
        self.reply: tuple[int, ...] = ()
        self.passes: list[float] = []
        self.right: list[bool] = []

    def limit(self, sequence: Any) -> int:
        return self.window

    def guess(self, plan: StepPlan) -> list[Pass]:
        runs = [run for run in plan.runs if run.decoding and run.count > 1]
        most = max((run.count - 1 for run in runs), default=0)
        passes = self._spin(most) if self.model is None else self.model.guess(plan)
        self.passes += [each.seconds for each in passes]
        for run in runs:
            place, drafts = run.sequence.output_length, run.sequence.drafts
            for ahead in range(len(drafts)):
                token = self.reply[place + ahead] if place + ahead < len(self.reply) else 0
                drafts[ahead] = (
                    token if place + ahead < len(self.right) and self.right[place + ahead] else token ^ 1
                )
        return passes

    def _spin(self, count: int) -> list[Pass]:
        passes = []
        for _ in range(count):
            started = time.perf_counter()
            while time.perf_counter() < started + self.cost:
                pass
            passes.append(Pass(1, time.perf_counter() - started))
        return passes

    def close(self) -> None:
        if self.model is not None:
            self.model.close()


class WithDrawn:
    """A model whose draft model is `Drawn`, that of the configuration behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.drafter = Drawn()

    def load(self, config: EngineConfig) -> LoadedModel:
        loaded = load_model(replace(config, model=self.path))
        self.drafter.model = loaded.drafter if isinstance(loaded.drafter, ModelDrafter) else None
        return replace(loaded, drafter=self.drafter)


class Bench:
    """One conversation with a model, with drafts or without. adaptive: the engine decides how many."""

    def __init__(self, engine: AsyncEngine, drafter: Drawn, tokens: int) -> None:
        self._engine, self.drafter = engine, drafter
        self._params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        self._tokens = tokens
        self._rng = random.Random(1)

    async def speed(
        self, window: int, chance: float = 0.0, cost: float = 0.0, *, adaptive: bool = False
    ) -> float:
        """Tokens a second after the first one."""
        drafter, core = self.drafter, self._engine._core
        drafter.window, drafter.cost, drafter.passes = window, cost, []
        right = round(chance * self._tokens)
        drafter.right = [True] * right + [False] * (self._tokens - right)
        self._rng.shuffle(drafter.right)
        assert core._service is not None
        assert core._service.speculation is not None
        core._service.speculation._window = None if adaptive else WIDEST
        reply = await self._engine.generate(PROMPT, self._params).result()
        assert reply.error is None, reply.error
        assert drafter.reply in ((), reply.token_ids), "drafts changed the reply"
        drafter.reply = reply.token_ids
        return reply.timings.tokens_per_second or 0.0


def expected(chance: float, window: int, cost: float, rows: float = 1.0) -> float:
    """The factor of the formula. cost, rows: of a pass, and of a step with all rows, in plain steps."""
    return (1 - chance ** (window + 1)) / (1 - chance) / (window * cost + rows)


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


async def rows_cost(bench: Bench, rounds: int) -> dict[int, float]:
    """By window, what a step with so many drafts takes, in plain steps."""
    model, bench.drafter.model = bench.drafter.model, None
    ratios: dict[int, list[float]] = {window: [] for window in WINDOWS}
    for _ in range(rounds):
        for window in WINDOWS:
            ratios[window].append(await bench.speed(0) / await bench.speed(window))
    bench.drafter.model = model
    return {window: median(values) for window, values in ratios.items()}


async def against_formula(
    bench: Bench, rounds: int, share: float | None
) -> list[tuple[float, int, float, float]]:
    """Rows of a table: chance, window, measured and expected factor.

    share: what a pass takes of a plain step; None: what the draft model takes.
    """
    await bench.speed(0)
    rows = await rows_cost(bench, rounds)
    found = []
    for chance in CHANCES:
        for window in WINDOWS:
            factors, costs = [], []
            for _ in range(rounds):
                plain = await bench.speed(0)
                factors.append(await bench.speed(window, chance, (share or 0) / plain) / plain)
                costs.append(median(bench.drafter.passes) * plain)
            factor, cost = median(factors), median(costs)
            formula = expected(chance, window, cost, rows[window])
            found.append((chance, window, factor, formula))
            print(
                f"| {chance} | {window} | {cost:.3f} | {rows[window]:.2f} | {factor:.2f} | {formula:.2f} "
                f"| {factor / formula:.2f} | {expected(chance, window, cost):.2f} |",
                flush=True,
            )
        ratios = []
        for _ in range(rounds):
            plain = await bench.speed(0)
            ratios.append(await bench.speed(WIDEST, chance, (share or 0) / plain, adaptive=True) / plain)
        print(f"| {chance} | auto | | | {median(ratios):.2f} | | | |", flush=True)
    return found


HEAD = """
| acceptance | drafts a step | c | v | factor | formula | factor / formula | formula with v = 1 |
|---|---|---|---|---|---|---|---|"""


def plot(points: list[tuple[float, int, float, float]]) -> str:
    """Factors by drafts a step: circles as measured, lines by the formula."""
    width, height, left, bottom = 480, 300, 44, 36
    top = max(max(point[2], point[3]) for point in points) * 1.1

    def at(window: float, factor: float) -> tuple[float, float]:
        return left + window / 7 * (width - left - 10), height - bottom - factor / top * (
            height - bottom - 10
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for factor in range(int(top) + 1):
        (x, y), (end, _) = at(0, factor), at(7, factor)
        parts.append(f'<path d="M{x:.0f} {y:.0f}H{end:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="20" y="{y + 4:.0f}">{factor}x</text>')
    parts += [f'<text x="{at(window, 0)[0] - 3:.0f}" y="{height - 18}">{window}</text>' for window in WINDOWS]
    parts.append(f'<text x="{width // 2 - 40}" y="{height - 4}">drafts a step</text>')
    for chance, colour in zip(CHANCES, ("#b45309", "#0f766e", "#4338ca"), strict=True):
        own = [point for point in points if point[0] == chance]
        line = " ".join("{:.1f},{:.1f}".format(*at(window, formula)) for _, window, _, formula in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        for _, window, factor, _ in own:
            x, y = at(window, factor)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        x, y = at(own[-1][1], own[-1][3])
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{colour}">{chance}</text>')
    return "\n".join([*parts, "</svg>\n"])


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="where to write a picture of the second table")
    options = parser.parse_args()
    tokens, rounds = options.tokens, options.rounds
    options.folder.mkdir(parents=True, exist_ok=True)
    files = {shape.name: options.folder / f"{shape.name}-Q8_0.gguf" for shape in (TARGET, DRAFT)}
    for seed, shape in enumerate((TARGET, DRAFT)):
        if not files[shape.name].exists():
            write_model(files[shape.name], shape, "Q8_0", vocabulary(), seed)

    kind: dict[str, Any] = {
        "context_length": 512,
        "kv_memory": 1 << 28,
        "draft_tokens": WIDEST,
        "max_sequences": 4,
    }
    model = WithDrawn(options.model)
    print("The default model, passes of a tenth of its step:\n" + HEAD)
    async with AsyncEngine(EngineConfig(model=model, draft_model="none", **kind)) as engine:
        await against_formula(Bench(engine, model.drafter, tokens), rounds, 0.1)
    print("\nThe default model as its own draft model:\n" + HEAD)
    async with AsyncEngine(EngineConfig(model=model, draft_model=options.model, **kind)) as engine:
        bench = Bench(engine, model.drafter, tokens)
        bench.drafter.reply = ()
        rows = await rows_cost(bench, rounds)
        for window in (1, 4):
            factors, costs = [], []
            for _ in range(rounds):
                plain = await bench.speed(0)
                factors.append(await bench.speed(window, 0.999999) / plain)
                costs.append(median(bench.drafter.passes) * plain)
            formula = expected(0.999999, window, median(costs), rows[window])
            factor = median(factors)
            print(
                f"| 1 | {window} | {median(costs):.3f} | {rows[window]:.2f} | {factor:.2f} | {formula:.2f} "
                f"| {factor / formula:.2f} | |"
            )
    print("\nA target with ten times the weights of its draft model:\n" + HEAD)
    model = WithDrawn(files["target"])
    async with AsyncEngine(EngineConfig(model=model, draft_model=files["draft"], **kind)) as engine:
        points = await against_formula(Bench(engine, model.drafter, tokens), rounds, None)
    if options.plot:
        options.plot.write_text(plot(points))


if __name__ == "__main__":
    asyncio.run(main())

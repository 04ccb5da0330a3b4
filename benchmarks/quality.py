"""How far the native backend's int8 activations are from float32 arithmetic on the same file.

Both backends read prose, code and a chat, token by token as written, and their distributions of the next
token are compared: Kullback-Leibler divergence of native from reference in nats, and how often the likeliest
token is the same one.

    python benchmarks/quality.py MODEL.gguf [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine import AsyncEngine, EngineConfig, Message

TEXTS = Path(__file__).parent / "texts"
WINDOW = 256
"""Tokens scored at once: bounds the memory of the two tables of log-probabilities."""

MEAN_TARGET = 0.005
P99_TARGET = 0.04


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of one text. mean, p99, largest: KL in nats. agreement: share of positions with the same best token.

    perplexity: of the text, in float arithmetic and in native arithmetic.
    """

    tokens: int
    mean: float
    p99: float
    largest: float
    agreement: float
    perplexity: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Positions:
    """What is kept of each position of a text.

    kl, same_best: [tokens]. losses: [tokens, 2], of the token that follows, in float and in native
    arithmetic; NaN where a window ends.
    """

    kl: NDArray[np.float64]
    same_best: NDArray[np.bool_]
    losses: NDArray[np.float64]

    def summary(self) -> Divergence:
        """Figures of these positions."""
        return Divergence(
            len(self.kl),
            float(self.kl.mean()),
            float(np.quantile(self.kl, 0.99)),
            float(self.kl.max()),
            float(self.same_best.mean()),
            tuple(float(value) for value in np.exp(np.nanmean(self.losses, axis=0))),  # type: ignore[arg-type]
        )


def joined(parts: list[Positions]) -> Positions:
    """Positions of several texts as one."""
    return Positions(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Positions.__slots__)
    )


def compare(
    ids: list[int], float_scores: NDArray[np.float32], native_scores: NDArray[np.float32]
) -> Positions:
    """Positions of a window from its log-probabilities [tokens, vocabulary]."""
    kl, same, losses = [], [], []
    for row, (p, q) in enumerate(zip(float_scores, native_scores, strict=True)):
        a, b = p.astype(np.float64), q.astype(np.float64)
        kl.append(float(np.exp(a) @ (a - b)))
        same.append(int(a.argmax()) == int(b.argmax()))
        following = ids[row + 1] if row + 1 < len(ids) else None
        losses.append((np.nan, np.nan) if following is None else (-a[following], -b[following]))
    return Positions(np.array(kl), np.array(same), np.array(losses))


async def texts(engine: AsyncEngine) -> dict[str, list[int]]:
    """Token ids of the three texts."""
    chat = [Message(**turn) for turn in json.loads((TEXTS / "chat.json").read_text(encoding="utf-8"))]
    return {
        "prose": await engine.tokenize((TEXTS / "prose.txt").read_text(encoding="utf-8")),
        "code": await engine.tokenize((TEXTS / "code.txt").read_text(encoding="utf-8")),
        "chat": await engine.tokenize(chat),
    }


async def measure(model: Path, *, tokens: int | None = None) -> dict[str, Positions]:
    """Positions of each text, or of its first `tokens` tokens."""
    config = EngineConfig(
        model=model,
        backend="native",
        kv_blocks=WINDOW // 32 + 1,
        context_length=WINDOW + 1,
        prefix_cache=False,
    )
    # One thread: torch's teams wait for each other by spinning, which a busy machine makes ten times as slow.
    exact = replace(config, backend="reference", dtype="float32", kv_dtype="float32", threads=1)
    async with AsyncEngine(exact) as reference, AsyncEngine(config) as native:
        found = {}
        for name, ids in (await texts(native)).items():
            ids = ids[:tokens]
            windows = [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)]
            found[name] = joined(
                [compare(part, await reference.score(part), await native.score(part)) for part in windows]
            )
        return found


def table(results: Mapping[str, Divergence]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| text | tokens | mean KL | p99 | largest | same best token | perplexity float / native |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {r.tokens} | {r.mean:.4f} | {r.p99:.4f} | {r.largest:.4f} | {r.agreement:.1%} | "
        f"{r.perplexity[0]:.3f} / {r.perplexity[1]:.3f} |"
        for name, r in results.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    options = parser.parse_args()
    positions = asyncio.run(measure(options.model))
    results = {name: part.summary() for name, part in positions.items()}
    results["all"] = joined(list(positions.values())).summary()
    print(table(results))
    whole = results["all"]
    for name, value, target in (
        ("mean", whole.mean, MEAN_TARGET),
        ("99th percentile", whole.p99, P99_TARGET),
    ):
        print(f"{name} {value:.4f}, target below {target}: {'met' if value < target else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps({name: asdict(r) for name, r in results.items()}, indent=2) + "\n")


if __name__ == "__main__":
    main()

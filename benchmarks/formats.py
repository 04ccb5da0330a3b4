"""termchat against llama.cpp on the types of weights that people have: the same file, in turns, type by type.

    python benchmarks/formats.py [--size small|1b|7b] [--shapes llama,moe] [--types Q4_0,Q4_K_M,...]
                                 [--rounds 1] [--threads N] [--models FOLDER] [--environment FOLDER]
                                 [--json FILE]

The files are random weights (`random_models.py`), written once into FOLDER: 1b are 0.6 to 1.9 GB each, 13 GB
for all, 7b 4 to 8 GB each. termchat is the one of the Python that runs this; llama.cpp that of the
environment, which is made as by `peers.py`. In each round both are started, loaded from a warm page cache,
and asked in turns; a ratio is taken within each round, and its median is shown. Memory is read right after
loading, before any of the KV cache is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from peer_report import FIRST_TOKEN, MEGABYTE, PREFILL_TOKENS, Measurement, machine, ratio
from peers import CHECKOUT, Engine, default_model, installed, python_of
from random_models import MORE_TYPES, SHAPES, TYPES, Shape, write_model

STREAMS = {1: 24, 8: 16, 16: 12}
"""Tokens of each stream, by the number of streams: so many make a measurement of a second or more."""

DECODE = {
    streams: Measurement(f"{streams} stream{'s' * (streams > 1)}", "tokens/s", target=target)
    for streams, target in zip(STREAMS, (1.2, 3.0, 2.5), strict=True)
}
PREFILL = Measurement("prefill of 512", "tokens/s", target=2.0)
FIRST = Measurement("exec to first token", "ms", higher_is_better=False, target=1.2)
LOAD = Measurement("load", "ms", higher_is_better=False, target=1.5)
COMPARED = (*DECODE.values(), PREFILL, FIRST, LOAD)
WARM_UP = 64
SHARE, MEMORY = 0.9, 1.05
"""Least share of the measured read bandwidth; most memory, in sizes of the file, beside 60 MB."""
BESIDE = 60.0


@dataclass(slots=True)
class Figures:
    """Of one file. compared: of both engines. share: of the read bandwidth at one stream. MB of memory."""

    shape: str
    type: str
    size: float
    compared: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {m.name: {"termchat": [], "llama.cpp": []} for m in COMPARED}
    )
    share: list[float] = field(default_factory=list)
    anonymous: dict[str, list[float]] = field(default_factory=dict)
    mapped: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""


class Promise(NamedTuple):
    """One figure against what the project promises of it."""

    text: str
    met: bool


def note(text: str) -> None:
    """Tell the user, apart from the result."""
    print(f"formats: {text}", file=sys.stderr, flush=True)


def warm(path: Path) -> None:
    """Have the file in the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def measure_round(figures: Figures, engines: list[Engine]) -> None:
    """One round: every measurement of both engines, in the order given."""

    def add(measurement: Measurement, engine: Engine, value: float) -> None:
        figures.compared[measurement.name][engine.name].append(value)

    with ExitStack() as stack:
        calls = {engine.name: stack.enter_context(engine.running()) for engine in engines}
        for engine in engines:
            loaded = calls[engine.name]("loaded")
            add(LOAD, engine, loaded["load"] * 1e3)
            for kind, found in (("anonymous", figures.anonymous), ("mapped", figures.mapped)):
                found.setdefault(engine.name, []).append(loaded.get(kind, float("nan")))
            calls[engine.name]("prefill", WARM_UP)  # the first step of a kind is slow everywhere
        for streams, tokens in STREAMS.items():
            for engine in engines:
                calls[engine.name]("decode", streams, 2)
            for engine in engines:
                add(DECODE[streams], engine, calls[engine.name]("decode", streams, tokens))
            if streams == 1:
                found = calls["termchat"]("bandwidth")
                figures.share.append(found["achieved"] / found["peak"])
        for engine in engines:
            add(PREFILL, engine, calls[engine.name]("prefill", PREFILL_TOKENS))
    for engine in engines:
        add(FIRST, engine, engine.one_shot()[FIRST_TOKEN])


def measure(path: Path, figures: Figures, engines: list[Engine], rounds: int) -> None:
    """All rounds of a file; what fails is said in its row and ends with it."""
    for round in range(rounds):
        warm(path)
        started = time.perf_counter()
        try:
            measure_round(figures, engines[:: -1 if round % 2 else 1])
        except RuntimeError as error:
            figures.failed = str(error).partition("\n")[0]
            note(f"{path.name}: {figures.failed}")
            return
        note(f"round {round + 1} took {time.perf_counter() - started:.0f} s")


def promises(figures: Figures) -> list[Promise]:
    """What was promised of these figures, in the order of the table's columns."""
    kept = []
    for measurement in COMPARED:
        found, target = ratio(measurement, figures.compared[measurement.name]), measurement.target
        assert found is not None
        assert target is not None
        met = found >= target if measurement.higher_is_better else found <= target
        kept.append(Promise(f"{measurement.name} {found:.2f}, target {target}", met))
    share = statistics.median(figures.share)
    kept.append(Promise(f"read bandwidth {share:.0%}, target {SHARE:.0%}", share >= SHARE))
    memory, most = resident(figures, "termchat"), MEMORY * figures.size + BESIDE
    kept.append(Promise(f"memory {memory:.0f} MB, target {most:.0f}", not memory > most))
    return kept


def resident(figures: Figures, engine: str) -> float:
    """MB in memory after loading."""
    pairs = zip(figures.anonymous[engine], figures.mapped[engine], strict=True)
    return statistics.median(sum(pair) for pair in pairs)


def cell(measurement: Measurement, figures: Figures) -> str:
    """The ratio, and the medians it is about."""
    values = figures.compared[measurement.name]
    own, peer = (statistics.median(values[name]) for name in ("termchat", "llama.cpp"))
    digits = 1 if own < 100 and measurement.higher_is_better else 0
    return f"{ratio(measurement, values):.2f} ({own:.{digits}f} / {peer:.{digits}f})"


def table(rows: list[Figures]) -> str:
    """Markdown, a line a file."""
    heads = [f"{m.name}, {m.unit}<br>({'≥' if m.higher_is_better else '≤'} {m.target})" for m in COMPARED]
    heads += [f"read bandwidth<br>(≥ {SHARE:.0%})", f"MB own + mapped<br>(≤ {MEMORY} file + {BESIDE:.0f})"]
    lines = [f"| type | file, MB | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for figures in rows:
        head = f"| {figures.type} | {figures.size:.0f} |"
        if figures.failed:
            lines.append(f"{head} {figures.failed} {'|' * len(heads)}")
            continue
        cells = [cell(measurement, figures) for measurement in COMPARED]
        own, mapped = figures.anonymous, figures.mapped
        memory = " / ".join(
            f"{statistics.median(own[name]):.0f} + {statistics.median(mapped[name]):.0f}"
            for name in ("termchat", "llama.cpp")
        )
        lines.append(f"{head} {' | '.join(cells)} | {statistics.median(figures.share):.0%} | {memory} |")
    return "\n".join(lines)


def vocabulary() -> dict[str, Any]:
    """What the default model's file says of its tokenizer."""
    from engine.loading.gguf import read_gguf

    metadata = read_gguf(default_model()).metadata
    return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}


def model_file(folder: Path, size: str, shape: Shape, mixture: str) -> Path:
    """The random model of this kind, made if it is not there."""
    path = folder / f"{shape.name}-{size}-{mixture}.gguf"
    if not path.exists():
        note(f"writes {path}")
        write_model(path, shape, mixture, vocabulary(), seed=11)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--size", choices=list(SHAPES), default="1b")
    parser.add_argument("--shapes", default="llama,moe", help="of llama and moe")
    every = ",".join(TYPES)
    parser.add_argument("--types", default=every, help=f"of {every},{','.join(MORE_TYPES)}")
    parser.add_argument("--rounds", type=int, default=1)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=int, default=cpus, help=f"of each engine ({cpus})")
    parser.add_argument("--models", type=Path, default=temporary / "termchat-formats", help="of the files")
    parser.add_argument(
        "--environment",
        type=Path,
        default=temporary / "termchat-peers",
        help="folder of llama.cpp's environment",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here, too")
    options = parser.parse_args()
    names, types = options.shapes.split(","), options.types.split(",")
    for given, known in ((names, ("llama", "moe")), (types, (*TYPES, *MORE_TYPES))):
        for word in given:
            if word not in known:
                parser.error(f"{word!r} is none of {', '.join(known)}")
    sys.path.insert(0, str(CHECKOUT))
    options.models.mkdir(parents=True, exist_ok=True)
    python = python_of(options.environment.absolute())
    if "llama.cpp" not in installed(python, ("llama.cpp",)):
        parser.exit(1, "formats: llama.cpp can't be installed here\n")
    description, done = machine(), []
    for shape in SHAPES[options.size]:
        if shape.name not in names:
            continue
        rows = []
        for mixture in types:
            path = model_file(options.models, options.size, shape, mixture)
            figures = Figures(shape.name, mixture, path.stat().st_size / MEGABYTE)
            engines = [
                Engine("termchat", Path(sys.executable), path, options.threads, {}),
                Engine("llama.cpp", python, path, options.threads, {}),
            ]
            note(f"measures {path.name}")
            measure(path, figures, engines, options.rounds)
            rows.append(figures)
            done.append(figures)
            if options.json:  # whatever becomes of the next one
                run = {"machine": description, "threads": options.threads, "size": options.size}
                files = [asdict(row) for row in done]
                options.json.write_text(json.dumps({**run, "files": files}, indent=2) + "\n")
        print(
            f"\n{shape.name}, {options.size}: termchat to llama.cpp (termchat / llama.cpp)\n\n{table(rows)}\n"
        )
        for figures in rows:
            for promise in () if figures.failed else promises(figures):
                if not promise.met:
                    print(f"- MISSED: {figures.type}: {promise.text}")
    print(f"\n{options.threads} threads, median of {options.rounds} rounds\n{description}")


if __name__ == "__main__":
    main()

"""termchat against llama.cpp and OpenVINO GenAI: the same GGUF file on the same machine, in turns in one run.

    python benchmarks/peers.py [--model FILE] [--rounds 3] [--threads N] [--environment FOLDER] [--json FILE]

The peers are installed into an environment of their own, which is kept for the next run (llama-cpp-python is
built from source, which takes a compiler and ten minutes). One that can't be installed is left out. Figures
are medians of the rounds; a ratio is taken within each round, against the better peer of that round, and then
its median.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).with_name("peer_workers.py")
CHECKOUT = Path(__file__).parents[1]
PROMPT = "Write one sentence about the sea."
PEERS = {"llama.cpp": ("llama-cpp-python", "llama_cpp"), "OpenVINO": ("openvino-genai", "openvino_genai")}
"""Distribution and module of each."""

MEGABYTE = 1e6

Values = dict[str, dict[str, list[float]]]
"""Of each measurement: the figures of each engine, one a round."""


@dataclass(frozen=True, slots=True)
class Results:
    """about: what each engine says of itself. values: figures to compare. own: figures of termchat alone."""

    about: dict[str, str]
    values: Values
    own: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row of the table. target: least ratio to the better peer; for times and sizes, the largest one."""

    name: str
    unit: str
    higher_is_better: bool = True
    target: float | None = None


DECODE = {
    streams: Measurement(f"decode, {streams} stream{'s' * (streams > 1)}", "tokens/s", target=target)
    for streams, target in ((1, 1.8), (4, None), (8, None), (16, 3.0))
}
PREFILL = Measurement("prefill of 512 tokens", "tokens/s", target=1.5)
FIRST_TOKEN = Measurement("exec to first token", "ms", higher_is_better=False)
PEAK_MEMORY = Measurement("peak memory of a one-shot", "MB", higher_is_better=False)
MEASUREMENTS = (*DECODE.values(), PREFILL, FIRST_TOKEN, PEAK_MEMORY)
DECODE_TOKENS = 64
PREFILL_TOKENS = 512
MESSAGE_TOKENS = 24


def note(text: str) -> None:
    """Tell the user, apart from the result."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


def installed(environment: Path) -> Iterator[tuple[str, Path]]:
    """Names of the peers that are, or could be, installed, and the Python that has them."""
    python = environment / "bin" / "python"
    if not python.exists():
        note(f"makes the environment {environment}")
        venv.create(environment, with_pip=True)
    for name, (distribution, module) in PEERS.items():
        imports = [str(python), "-c", f"import {module}"]
        if subprocess.run(imports, capture_output=True).returncode != 0:
            note(f"installs {distribution} into {environment}; a build from source takes minutes")
            pip = [str(python), "-m", "pip", "install", "--quiet", distribution]
            done = subprocess.run(pip, stdout=sys.stderr)
            if done.returncode != 0 or subprocess.run(imports, capture_output=True).returncode != 0:
                note(f"{name} can't be installed here and is left out")
                continue
        yield name, python


class Engine:
    """A process of `peer_workers.py`."""

    def __init__(self, name: str, python: Path, model: Path, threads: int) -> None:
        self.name = name
        self._command = [str(python), str(WORKERS), name, str(model), str(threads)]
        self._environment = {**os.environ, "PYTHONPATH": str(CHECKOUT) if name == "termchat" else ""}
        # Compiled modules are kept, as those of an installed program are.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._shot = [*self._command, PROMPT]
        if name == "termchat":
            options = ["--no-save", "-t", "0", "-n", "16", "--threads", str(threads)]
            self._shot = [str(python), "-m", "termchat", "--model", str(model), *options, PROMPT]

    @contextmanager
    def running(self) -> Iterator[Callable[..., Any]]:
        """The worker, as a function: call(method, arguments)."""
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def answer() -> str:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"peers: {self.name} ended with status {process.wait()}")
            return line

        def call(name: str, *arguments: Any) -> Any:
            assert process.stdin is not None
            process.stdin.write(json.dumps([name, arguments]) + "\n")
            process.stdin.flush()
            return json.loads(answer())

        try:
            answer()  # ready
            yield call
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def one_shot(self) -> dict[Measurement, float]:
        """One question to a new process: ms until the reply's first byte, and its peak memory in MB."""
        started = time.perf_counter()
        process = subprocess.Popen(
            self._shot, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=self._environment
        )
        assert process.stdout is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - started
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if not first or status:
            raise SystemExit(f"peers: the one-shot of {self.name} failed: {' '.join(self._shot)}")
        unit = 1 if sys.platform == "darwin" else 1024
        return {FIRST_TOKEN: seconds * 1e3, PEAK_MEMORY: usage.ru_maxrss * unit / MEGABYTE}


def measure(engines: list[Engine], rounds: int) -> Results:
    """Figures of each engine, in turns, and of termchat's memory traffic and second turns."""
    values: Values = {m.name: {engine.name: [] for engine in engines} for m in MEASUREMENTS}
    own: dict[str, list[float]] = {"peak": [], "achieved": [], "first": [], "second": []}
    with ExitStack() as stack:
        calls = {engine.name: stack.enter_context(engine.running()) for engine in engines}

        def observe(found: Mapping[str, float]) -> None:
            for name, value in found.items():
                own[name].append(value)

        for call in calls.values():  # the first step of a kind is slow everywhere
            call("prefill", PREFILL_TOKENS)
            for streams in DECODE:
                call("decode", streams, 4)
        for round in range(rounds):
            note(f"round {round + 1} of {rounds}")
            turns = engines[round % len(engines) :] + engines[: round % len(engines)]
            observe(calls["termchat"]("bandwidth"))
            for streams, measurement in DECODE.items():
                for engine in turns:
                    speed = calls[engine.name]("decode", streams, DECODE_TOKENS)
                    values[measurement.name][engine.name].append(speed)
            for engine in turns:
                values[PREFILL.name][engine.name].append(calls[engine.name]("prefill", PREFILL_TOKENS))
            observe(calls["termchat"]("turns", PREFILL_TOKENS, MESSAGE_TOKENS))
            for engine in turns:
                for measurement, value in engine.one_shot().items():
                    values[measurement.name][engine.name].append(value)
        observe(calls["termchat"]("bandwidth"))
        return Results({name: call("about") for name, call in calls.items()}, values, own)


def ratio(measurement: Measurement, values: Mapping[str, list[float]]) -> float | None:
    """termchat to the better peer of each round, the median of the rounds; None without a peer."""
    peers = [series for name, series in values.items() if name != "termchat"]
    if not peers:
        return None
    best = max if measurement.higher_is_better else min
    pairs = zip(values["termchat"], (best(round) for round in zip(*peers, strict=True)), strict=True)
    return statistics.median(own / peer for own, peer in pairs)


def table(values: Values) -> str:
    """Markdown: the median of each engine and termchat's ratio to the better peer."""
    names = list(values[PREFILL.name])
    lines = [
        f"| | {' | '.join(names)} | termchat / better peer |",
        "|---" * (len(names) + 2) + "|",
    ]
    for measurement in MEASUREMENTS:
        row = values[measurement.name]
        cells = [f"{statistics.median(row[name]):,.0f}" for name in names]
        found = ratio(measurement, row)
        target = "" if measurement.target is None else f" (target {measurement.target})"
        shown = "" if found is None else f"{found:.2f}{target}"
        lines.append(f"| {measurement.name}, {measurement.unit} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines)


def targets(results: Results, model: Path) -> Iterator[tuple[str, bool]]:
    """What the project promises of this run, and whether it holds."""
    values, own = results.values, results.own
    for measurement in MEASUREMENTS:
        found = ratio(measurement, values[measurement.name])
        if found is not None and measurement.target is not None:
            text = f"{measurement.name}: {found:.2f} times the better peer, target {measurement.target}"
            yield text, found >= measurement.target
    pairs = zip(own["achieved"], own["peak"], strict=True)
    share = statistics.median(achieved / peak for achieved, peak in pairs)
    yield f"memory traffic at 1 stream: {share:.0%} of the peak, target 70%", share >= 0.7
    turns = statistics.median(b / a for a, b in zip(own["first"], own["second"], strict=True))
    yield f"TTFT of a second turn: {turns:.2f} of the first, target 0.20", turns < 0.2
    shots = values[FIRST_TOKEN.name]
    if "llama.cpp" in shots:
        pairs = zip(shots["termchat"], shots["llama.cpp"], strict=True)
        start = statistics.median(ours / peer for ours, peer in pairs)
        yield f"exec to first token: {start:.2f} times llama.cpp's, target 1.5", start <= 1.5
    size = model.stat().st_size / MEGABYTE
    memory, limit = statistics.median(values[PEAK_MEMORY.name]["termchat"]), 2 * size + 60
    text = f"peak memory of a one-shot: {memory:.0f} MB, target {limit:.0f} (2 x {size:.0f} + 60, without KV)"
    yield text, memory < limit


def machine() -> str:
    """What the figures were measured on."""
    processor = platform.processor() or platform.machine()
    memory = 0.0
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cpus, load = os.cpu_count(), os.getloadavg()[0]
    today = datetime.date.today().isoformat()
    return f"{processor}, {cpus} CPUs, {memory:.0f} GiB, load {load:.1f} before the run, {today}"


def default_model() -> Path:
    """Where the application keeps its default model."""
    from termchat.download import ensure
    from termchat.paths import Paths
    from termchat.registry import Registry

    return ensure(Registry.load(Paths.default()), "smollm2-135m")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a GGUF file (the default model)")
    parser.add_argument("--rounds", type=int, default=3)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=int, default=cpus, help=f"of each engine ({cpus})")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path(tempfile.gettempdir()) / "termchat-peers",
        help="folder of the peers' virtual environment",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here, too")
    options = parser.parse_args()
    sys.path.insert(0, str(CHECKOUT))
    model = (options.model or default_model()).expanduser().resolve()
    description = machine()
    peers = list(installed(options.environment.absolute()))
    engines = [
        Engine(name, python, model, options.threads)
        for name, python in [("termchat", Path(sys.executable)), *peers]
    ]
    results = measure(engines, options.rounds)
    print(f"{model.name}, {options.threads} threads, median of {options.rounds} rounds\n{description}\n")
    for name, about in results.about.items():
        print(f"- {name}: {about}")
    print(f"\n{table(results.values)}\n")
    peak, achieved = (", ".join(f"{v:.1f}" for v in results.own[name]) for name in ("peak", "achieved"))
    print(f"read bandwidth, GB/s: {peak}; achieved by one stream: {achieved}")
    first, second = (statistics.median(results.own[name]) for name in ("first", "second"))
    print(
        f"TTFT, ms: first turn of {PREFILL_TOKENS} tokens {first:.0f}; second turn, a reply and "
        f"{MESSAGE_TOKENS} tokens longer, {second:.0f}\n"
    )
    for text, met in targets(results, model):
        print(f"- {'met' if met else 'MISSED'}: {text}")
    if options.json:
        run = {"machine": description, "model": model.name, "threads": options.threads}
        options.json.write_text(json.dumps({**run, **asdict(results)}, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""termchat against llama.cpp and OpenVINO GenAI: the same GGUF file on the same machine, in turns in one run.

    python benchmarks/peers.py [--model FILE] [--rounds 3] [--threads N] [--without-amx]
                               [--environment FOLDER] [--json FILE]

All three are installed into an environment of their own, which is kept for the next run (llama-cpp-python is
built from source, which takes a compiler and ten minutes); termchat anew each time, from a wheel of this
checkout, as its users have it. A peer that can't be installed is left out. Figures
are medians of the rounds; a ratio is taken within each round, against the better peer of that round, and then
its median. --without-amx asks all three to compute with AVX-512 alone, as on the many processors that have no
tile unit; it leaves out the one-shots, which hardly use it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peer_report import (
    DECODE,
    DECODE_TOKENS,
    FIRST_TOKEN,
    MEASUREMENTS,
    MEGABYTE,
    MESSAGE_TOKENS,
    ONE_SHOT,
    PEAK_MEMORY,
    PREFILL,
    PREFILL_TOKENS,
    Measurement,
    Results,
    Values,
    machine,
    table,
    targets,
)

WORKERS = Path(__file__).with_name("peer_workers.py")
CHECKOUT = Path(__file__).parents[1]
PROMPT = "Write one sentence about the sea."
AVX512_ALONE = {"WITHOUT_AMX": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
"""Environment of a worker that must not use AMX: for `peer_workers.py`, and for OpenVINO's library."""
PEERS = {"llama.cpp": ("llama-cpp-python", "llama_cpp"), "OpenVINO": ("openvino-genai", "openvino_genai")}
"""Distribution and module of each."""


def note(text: str) -> None:
    """Tell the user, apart from the result."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


def python_of(environment: Path) -> Path:
    """The environment's Python; the environment is made if it is not there."""
    python = environment / "bin" / "python"
    if not python.exists():
        note(f"makes the environment {environment}")
        venv.create(environment, with_pip=True)
    return python


def install_termchat(python: Path) -> None:
    """Install this checkout with what it needs, but torch, which its CPU backend does without."""
    note("installs termchat; after a change of its C++ sources the build takes minutes")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = [name for name in project["dependencies"] if not name.startswith("torch")]
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    for what in (needed, ["--no-deps", "--force-reinstall", str(CHECKOUT)]):
        subprocess.run([*pip, *what], stdout=sys.stderr, check=True)


def installed(python: Path, names: Iterable[str] = tuple(PEERS)) -> Iterator[str]:
    """Those of the peers that are, or could be, installed for this Python."""
    for name in names:
        distribution, module = PEERS[name]
        imports = [str(python), "-c", f"import {module}"]
        if subprocess.run(imports, capture_output=True).returncode != 0:
            note(f"installs {distribution}; a build from source takes minutes")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", distribution]
            # Without these options gcc drops the tile configuration of ggml's AMX code, which then crashes
            # (ggml-org/llama.cpp#20824); pip's cache may hold such a build.
            flags = f"{os.environ.get('CXXFLAGS', '')} -fno-dse -fno-tree-dse"
            done = subprocess.run(pip, stdout=sys.stderr, env={**os.environ, "CXXFLAGS": flags})
            if done.returncode != 0 or subprocess.run(imports, capture_output=True).returncode != 0:
                note(f"{name} can't be installed here and is left out")
                continue
        yield name


class Engine:
    """A process of `peer_workers.py`."""

    def __init__(
        self, name: str, python: Path, model: Path, threads: int, environment: dict[str, str]
    ) -> None:
        self.name = name
        self._command = [str(python), str(WORKERS), name, str(model), str(threads)]
        self._environment = {**os.environ, **environment, "PYTHONPATH": ""}
        self._shot = [*self._command, PROMPT]
        if name == "termchat":
            options = ["--no-save", "-t", "0", "-n", "16", "--threads", str(threads)]
            self._shot = [str(python.with_name("termchat")), "--model", str(model), *options, PROMPT]

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
                raise RuntimeError(f"{self.name} ended with status {process.wait()}")
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
            raise RuntimeError(f"the one-shot of {self.name} failed: {' '.join(self._shot)}")
        unit = 1 if sys.platform == "darwin" else 1024
        return {FIRST_TOKEN: seconds * 1e3, PEAK_MEMORY: usage.ru_maxrss * unit / MEGABYTE}


def measure(engines: list[Engine], rounds: int, *, one_shots: bool) -> Results:
    """Figures of each engine, in turns, and of termchat's memory traffic and second turns."""
    measurements = [m for m in MEASUREMENTS if one_shots or m not in ONE_SHOT]
    values: Values = {m.name: {engine.name: [] for engine in engines} for m in measurements}
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
            for engine in turns if one_shots else ():
                for measurement, value in engine.one_shot().items():
                    values[measurement.name][engine.name].append(value)
        observe(calls["termchat"]("bandwidth"))
        return Results({name: call("about") for name, call in calls.items()}, values, own)


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
    parser.add_argument("--without-amx", action="store_true", help="compute with AVX-512 alone")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path(tempfile.gettempdir()) / "termchat-peers",
        help="folder of the virtual environment of all three",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here, too")
    options = parser.parse_args()
    sys.path.insert(0, str(CHECKOUT))
    model = (options.model or default_model()).expanduser().resolve()
    description = machine()
    python = python_of(options.environment.absolute())
    install_termchat(python)
    environment = AVX512_ALONE if options.without_amx else {}
    engines = [Engine("termchat", python, model, options.threads, environment)]
    for name in installed(python):
        peer = Engine(name, python, model, options.threads, environment)
        try:
            peer.one_shot()
        except RuntimeError as error:
            note(f"{name} is left out: {error}")
        else:
            engines.append(peer)
    results = measure(engines, options.rounds, one_shots=not options.without_amx)
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

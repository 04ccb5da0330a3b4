"""Mutated models and settings: each loads or is refused with one sentence, quickly, in little memory.

    python scripts/fuzz.py [--model MODEL.gguf] [--models 20000] [--settings 5000] [--seed N]

Models are mutations of small GGUF files and folders (headers, tokenizers, templates, weights), of all kinds
and types, and of the header of the given model; each is opened, its tokenizer used, its weights placed and
some tokens computed. Settings are mutations
of config.toml, models.toml and theme files. Exits with 1 and the seed of the first one that raises anything
but the error for users, says so in more than one line, writes to standard error, takes longer than 2 s of the
processor or 60 s, or makes the process grow by more than 500 MB.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuzz_kinds import folder_kinds, gguf_mixture
from fuzz_models import Files, folder_model, gguf_model, mutate_tensors, mutate_values, start

from engine.config import Quantization
from termchat.config import Config
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.themes import load_themes

SECONDS = 2.0
PATIENCE = 60.0
GROWTH = 500 << 20
SHARES = {"tokenizer.json": 4, "tokenizer_config.json": 1, "config.json": 6, "model.safetensors": 6}
QUANTIZATIONS: tuple[Quantization, ...] = (*("auto",) * 4, "none", "int8", "int4", "nf4")
ROOT = Path(__file__).resolve().parent.parent

CONFIG = b"""model = "smollm2-135m"
[sampling]
temperature = 0.7
top_p = 0.95
[ui]
theme = "dark"
[keys]
"app.quit" = "ctrl+q"
[engine]
threads = 2
"""


def mutate(rng: random.Random, data: bytes, until: int) -> bytes:
    """A few random changes to the first `until` bytes: flips, extreme numbers, cuts, copies."""
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(max(1, min(until, len(result))))
        kind = rng.randrange(6)
        if kind == 0:
            result[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            width = rng.choice([4, 8])
            number = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]) % 256**width
            result[at : at + width] = number.to_bytes(width, "little")
        elif kind == 2:
            del result[at : at + rng.randrange(1, 40)]
        elif kind == 3:
            result[at:at] = result[rng.randrange(len(result) or 1) :][: rng.randrange(1, 200)]
        elif kind == 4:
            del result[rng.randrange(len(result) or 1) :]
        else:
            result[at : at + 8] = rng.randbytes(8)
        if not result:
            break
    return bytes(result)


class MisbehaviourError(Exception):
    """A file did what no file may do."""


def resident() -> int:
    """Largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Judge:
    """Runs one file after the other and stops at the first that misbehaves. kinds: refusals, counted."""

    def __init__(self) -> None:
        self.refused = self.loaded = 0
        self.slowest = self.longest = 0.0
        self.kinds: Counter[str] = Counter()
        self._before = resident()

    @property
    def growth(self) -> int:
        """Bytes by which the process has grown."""
        return resident() - self._before

    def check(self, seed: int, load: Callable[[], str | None]) -> None:
        """Load: returns the refusal, None for a file that loads."""
        started, used = time.perf_counter(), time.process_time()
        try:
            with silent() as said:
                refusal = load()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise MisbehaviourError(f"seed {seed}: {type(error).__name__}: {error}") from error
        self.slowest = max(self.slowest, time.process_time() - used)
        self.longest = max(self.longest, time.perf_counter() - started)
        if noise := said():
            raise MisbehaviourError(f"seed {seed}: written to standard error: {noise[:300]!r}")
        if refusal is not None and ("\n" in refusal or not refusal.isprintable() or len(refusal) > 2000):
            raise MisbehaviourError(f"seed {seed}: not one short line: {refusal[:300]!r}")
        if self.slowest > SECONDS or self.longest > PATIENCE:
            raise MisbehaviourError(
                f"seed {seed}: {self.slowest:.1f} s of the processor, {self.longest:.1f} s"
            )
        if self.growth > GROWTH:
            raise MisbehaviourError(f"seed {seed}: grew by {self.growth >> 20} MB")
        self.refused += refusal is not None
        self.loaded += refusal is None
        if refusal is not None:
            self.kinds[kind_of(refusal)] += 1

    def report(self, what: str) -> None:
        """One line of figures."""
        total = self.refused + self.loaded
        print(
            f"{what}: {total} files, {self.refused} refused in {len(self.kinds)} ways, {self.loaded} loaded, "
            f"slowest {self.slowest:.2f} s of the processor ({self.longest:.2f} s), "
            f"grew by {self.growth >> 20} MB"
        )


@contextmanager
def silent() -> Iterator[Callable[[], bytes]]:
    """Standard error goes to a file meanwhile; gives a function that returns what was written."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept, content = os.dup(2), bytearray()
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: bytes(content)
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            content += file.read(4096)


def kind_of(refusal: str) -> str:
    """What a refusal is about, without the names and numbers in it."""
    reason = refusal.rpartition("/")[2].partition(": ")[2] or refusal
    return " ".join(re.sub(r"'[^']*'|[\d.,e+-]*\d|\([^)]*\)", "", reason).split()[:7])


def mutated(rng: random.Random, files: Files) -> Files:
    """A model with one of its files mutated, as bytes or as values."""
    names = [name for name in files for _ in range(SHARES.get(name, 2))]
    name = rng.choice(names)
    if name.endswith(".json") and rng.randrange(3):
        return {**files, name: mutate_values(rng, files[name])}
    if name == "model.safetensors" and rng.randrange(3):
        return {**files, name: mutate_tensors(rng, files[name])}
    until = 3000 if name == "model.safetensors" else rng.choice([1500, 20000, len(files[name])])
    return {**files, name: mutate(rng, files[name], until)}


def fuzz_models(count: int, seed: int, folder: Path, header: bytes = b"") -> Judge:
    """Mutated GGUF files and folders, started as far as a start goes, and now and then a real header."""
    models = [
        make(sentencepiece=sentencepiece)
        for make in (gguf_model, folder_model)
        for sentencepiece in (False, True)
    ]
    models += [*folder_kinds().values(), *(gguf_mixture(first) for first in (0, 6, 12)), gguf_mixture(0, 10)]
    paths: list[Path] = []
    for index, files in enumerate(models):
        paths.append(folder / f"m{index}")
        write(paths[-1], files)
        assert start(paths[-1]) is None, "the unchanged model starts"
    judge = Judge()
    for number in range(seed, seed + count):
        rng = random.Random(number)
        index = rng.randrange(len(models))
        if header and number % 200 == 0:  # takes longer to read
            index, files = 0, {"model.gguf": mutate(rng, header, 3000)}
        else:
            files = mutated(rng, models[index])
        write(paths[index], files)
        quantization = rng.choice(QUANTIZATIONS)
        judge.check(number, partial(start, paths[index], quantization, rng.choice(["auto", "int8"])))
    judge.report("models")
    return judge


def write(folder: Path, files: Files) -> None:
    """Put a model into its folder."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def fuzz_settings(count: int, seed: int, folder: Path) -> None:
    """Mutated config.toml, models.toml and themes."""
    themes = sorted((ROOT / "themes").glob("*.toml"))
    paths = replace(Paths.default(), config=folder)
    sources = [CONFIG, (ROOT / "models.toml").read_bytes(), *(theme.read_bytes() for theme in themes)]
    judge = Judge()

    def config() -> str | None:
        return " ".join(Config.load(folder / "config.toml").warnings) or None

    def registry() -> str | None:
        return " ".join(Registry.load(paths).warnings) or None

    def theme() -> str | None:
        return " ".join(load_themes([folder / "themes"])[1]) or None

    (folder / "themes").mkdir()
    for number in range(seed, seed + count):
        rng = random.Random(number)
        which = rng.randrange(3)
        name, load = (("config.toml", config), ("models.toml", registry), ("themes/x.toml", theme))[which]
        source = rng.choice(sources[2:]) if which == 2 else sources[which]
        (folder / name).write_bytes(mutate(rng, source, len(source)))
        judge.check(number, load)
    judge.report("settings")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a GGUF file, whose header is mutated as well")
    parser.add_argument("--models", type=int, default=20000)
    parser.add_argument("--settings", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    faulthandler.enable(os.fdopen(os.dup(2), "w"))  # standard error itself is watched
    print("seed", options.seed, flush=True)
    header = b"" if options.model is None else options.model.read_bytes()[: 4 << 20]
    try:
        with tempfile.TemporaryDirectory() as folder:
            judge = fuzz_models(options.models, options.seed, Path(folder), header)
            for kind, number in judge.kinds.most_common(40):
                print(f"{number:7} {kind}")
        with tempfile.TemporaryDirectory() as folder:
            fuzz_settings(options.settings, options.seed, Path(folder))
    except MisbehaviourError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

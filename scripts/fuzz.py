"""Mutated model headers and settings: each loads or is refused with one sentence, quickly, in little memory.

    python scripts/fuzz.py --model MODEL.gguf [--headers 20000] [--settings 5000] [--seed N]

Headers are mutations of a small GGUF file and of the given model's own header; settings are mutations of
config.toml, models.toml and theme files. Exits with 1 and the seed of the first file that raises anything but
the error for users, takes longer than 2 s, or makes the process grow by more than 200 MB.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine import EngineError
from engine.loading.checkpoint import open_checkpoint
from termchat.config import Config
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.themes import load_themes

SECONDS = 2.0
GROWTH = 200 << 20
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


def resident() -> int:
    """Largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Judge:
    """Runs one file after the other and stops at the first that misbehaves."""

    def __init__(self) -> None:
        self.refused = self.loaded = 0
        self.slowest = 0.0
        self._before = resident()

    def check(self, seed: int, load: Callable[[], str | None]) -> None:
        """Load: returns the refusal, None for a file that loads."""
        started = time.perf_counter()
        try:
            refusal = load()
        except Exception as error:
            sys.exit(f"seed {seed}: {type(error).__name__}: {error}")
        seconds = time.perf_counter() - started
        self.slowest = max(self.slowest, seconds)
        if refusal is not None and ("\n" in refusal or not refusal):
            sys.exit(f"seed {seed}: not one line: {refusal!r}")
        if seconds > SECONDS:
            sys.exit(f"seed {seed}: {seconds:.1f} s")
        if resident() - self._before > GROWTH:
            sys.exit(f"seed {seed}: grew by {(resident() - self._before) >> 20} MB")
        self.refused += refusal is not None
        self.loaded += refusal is None

    def report(self, what: str) -> None:
        """One line of figures."""
        growth = (resident() - self._before) >> 20
        total = self.refused + self.loaded
        print(
            f"{what}: {total} files, {self.refused} refused, {self.loaded} loaded, "
            f"slowest {self.slowest:.2f} s, grew by {growth} MB"
        )


def small_model() -> bytes:
    """A complete GGUF file of a tiny llama, made with the gguf package."""
    import gguf
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for add, value in (
            (writer.add_context_length, 64),
            (writer.add_embedding_length, 32),
            (writer.add_block_count, 1),
            (writer.add_feed_forward_length, 32),
            (writer.add_head_count, 2),
            (writer.add_head_count_kv, 1),
            (writer.add_vocab_size, 8),
        ):
            add(value)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([*"abcdefgh"])
        square = ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        shapes = {"token_embd.weight": (8, 32), "output_norm.weight": (32,)}
        shapes |= {f"blk.0.{name}.weight": (32,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.0.{name}.weight": (16, 32) for name in ("attn_k", "attn_v")}
        shapes |= {f"blk.0.{name}.weight": (32, 32) for name in square}
        for name, shape in shapes.items():
            writer.add_tensor(name, np.zeros(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def open_model(path: Path) -> str | None:
    """The refusal of a model file."""
    try:
        open_checkpoint(path)
    except EngineError as error:
        return error.message
    return None


def fuzz_headers(model: Path, count: int, seed: int, folder: Path) -> None:
    """Mutated GGUF headers."""
    small, path = small_model(), folder / "model.gguf"
    assert open_model_bytes(path, small) is None, "the unchanged file loads"
    whole = model.read_bytes()
    header = whole[: 4 << 20]
    judge = Judge()
    for number in range(seed, seed + count):
        rng = random.Random(number)
        # The real header takes longer to read, so most files are small ones.
        data = mutate(rng, header, 3000) if number % 50 == 0 else mutate(rng, small, len(small))
        path.write_bytes(data)
        judge.check(number, lambda: open_model(path))
    judge.report("GGUF headers")


def open_model_bytes(path: Path, data: bytes) -> str | None:
    """The refusal of a model given as bytes."""
    path.write_bytes(data)
    return open_model(path)


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
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--headers", type=int, default=20000)
    parser.add_argument("--settings", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    print("seed", options.seed)
    with tempfile.TemporaryDirectory() as folder:
        fuzz_headers(options.model, options.headers, options.seed, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        fuzz_settings(options.settings, options.seed, Path(folder))


if __name__ == "__main__":
    main()

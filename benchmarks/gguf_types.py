"""Every type of GGUF weights as llama.cpp's own quantizer writes it: read, computed and counted by termchat.

    python benchmarks/gguf_types.py --quantizer BIN/llama-quantize [--environment FOLDER] [--types Q4_0,...]
                                    [--models default,random] [--values-only] [--folder FOLDER] [--json FILE]

Each file is made from the default model's values or from random ones of width 512, all matrices in the one
type where their columns allow it. Columns: the values termchat computes with against those of the `gguf`
package; bytes a step reads against those of the file; MB in memory after loading beyond 1.05 sizes of the
file; then, over 300 tokens that termchat says greedily, the divergence of termchat and of llama.cpp from
float32 arithmetic on the file's exact values, how many tokens llama.cpp would say alike, and the most by
which its choice was ahead where it would not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from formats import MEMORY, vocabulary
from numpy.typing import NDArray
from peer_report import MEGABYTE
from peers import CHECKOUT, Engine, default_model, installed, note, python_of
from random_models import SHAPES, add_metadata, plain_tensors

from engine import AsyncEngine, EngineConfig, SamplingParams
from engine.loading.gguf import GGUFFile, read_gguf
from engine.loading.stored import StoredTensor
from engine.model import load_model
from kernels.stored import canonical
from kernels.weights import dequantize

_ALONE = ("F16", "BF16", "Q8_0", "Q6_K", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "Q2_K", "IQ3_S")
_MIXED = {"Q5_K": "Q5_K_S", "Q4_K": "Q4_K_S", "Q3_K": "Q3_K_S", "MXFP4": "MXFP4_MOE"}
TYPES = {name: name for name in (*_ALONE, "TQ1_0", "TQ2_0")} | _MIXED
"""What the quantizer calls the mixture that has the type, where it makes it without an importance matrix."""

PROMPT, LENGTH = "The sea is", 300
ROWS = 512
"""Of each tensor, compared with the package's values; a tensor of every shape and type is."""

Scores = NDArray[np.float32]


@dataclass(slots=True)
class Row:
    """What was found of a file. See the table's heads in `table`."""

    model: str
    type: str
    size: float
    types: str
    values: str
    bytes_ratio: float
    beyond: float = float("nan")
    termchat: float = float("nan")
    llama: float = float("nan")
    alike: int = 0
    gap: float = 0.0


def write_float(path: Path, tensors: dict[str, NDArray[np.float32]], metadata: dict[str, Any]) -> None:
    """A llama file of float32 values, whole or not at all."""
    writer = gguf.GGUFWriter(None, "llama")
    add_metadata(writer, metadata)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    partial = path.with_name(f".{path.name}")
    writer.write_header_to_file(partial)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def package_values(tensor: StoredTensor, rows: slice = slice(None)) -> NDArray[np.float32]:
    """What the gguf package makes of a tensor's rows."""
    data = tensor.data.reshape(tensor.shape[0], -1)[rows]
    kind = gguf.GGMLQuantizationType[tensor.type]
    if tensor.type == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    values: NDArray[np.float32] = gguf.quants.dequantize(data, kind)
    return values


def sources(folder: Path, wanted: list[str]) -> dict[str, Path]:
    """The float32 files to quantize, made if they are not there."""
    paths = {name: folder / f"{name}-F32.gguf" for name in wanted}
    if "default" in wanted and not paths["default"].exists():
        file = read_gguf(default_model())
        tensors = {
            name: package_values(t) if len(t.shape) == 2 else t.data.view(np.float32)
            for name, t in file.tensors.items()
        }
        write_float(paths["default"], tensors, file.metadata)
    if "random" in wanted and not paths["random"].exists():
        shape = replace(SHAPES["small"][0], width=512, heads=8, kv_heads=2, layers=4, feed_forward=1536)
        tensors, metadata = plain_tensors(shape, vocabulary(), seed=12)
        write_float(paths["random"], tensors, metadata)
    return paths


def compare_values(file: GGUFFile) -> tuple[str, str]:
    """Types of the file's matrices; how far our values are from the package's, to the largest of a row."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    count: Counter[str] = Counter()
    worst: dict[str, float] = {}
    for tensor in file.tensors.values():
        if len(tensor.shape) != 2:
            continue
        count[tensor.type] += int(np.prod(tensor.shape))
        if (tensor.type, tensor.shape) in seen:
            continue
        seen.add((tensor.type, tensor.shape))
        weight = canonical(tensor.to_weight(tensor.format))
        own, exact = dequantize(weight, 0, ROWS), package_values(tensor, slice(0, ROWS))
        largest = np.abs(exact).max(axis=1, keepdims=True)
        off = np.divide(np.abs(own - exact), largest, out=np.zeros_like(exact), where=largest > 0)
        worst[tensor.type] = max(worst.get(tensor.type, 0.0), float(off.max()))
    whole = sum(count.values())
    types = ", ".join(f"{type} {part / whole:.0%}" for type, part in count.most_common())
    found = (f"{type} exact" if off == 0 else f"{type} {off:.1e}" for type, off in worst.items())
    return types, ", ".join(found)


def bytes_ratio(path: Path, file: GGUFFile) -> float:
    """Bytes that a step reads, to those of the file's tensors that it has to read."""
    model = load_model(EngineConfig(model=path, kv_blocks=4, context_length=64))
    try:
        head = "output.weight" in file.tensors
        needed = sum(
            t.data.nbytes for name, t in file.tensors.items() if not (head and name == "token_embd.weight")
        )
        return model.runner.traffic.weight_bytes / needed
    finally:
        model.runner.close()


async def own_scores(path: Path) -> tuple[list[int], Scores, Scores]:
    """The tokens termchat says, its log-probabilities of them all, and those of exact arithmetic."""
    blocks = LENGTH // 32 + 2
    config = EngineConfig(model=path, kv_blocks=blocks, context_length=LENGTH + 1, prefix_cache=False)
    async with AsyncEngine(config) as native:
        prompt = await native.tokenize(PROMPT)
        params = SamplingParams(temperature=0, max_tokens=LENGTH - len(prompt), ignore_eos=True)
        said = await native.generate(prompt, params).result()
        ids = [*prompt, *said.token_ids]
        own = await native.score(ids)
    # One thread: torch's teams wait for each other by spinning, which a busy machine makes ten times as slow.
    exact = replace(config, backend="reference", dtype="float32", kv_dtype="float32", quantization="none")
    async with AsyncEngine(replace(exact, threads=1)) as reference:
        return ids, own, await reference.score(ids)


def divergence(exact: Scores, other: Scores) -> float:
    """Mean Kullback-Leibler divergence of log-probabilities [tokens, vocabulary], in nats."""
    p = exact.astype(np.float64)
    return float((np.exp(p) * (p - other)).sum(axis=1).mean())


def measure(row: Row, path: Path, peer: Engine | None) -> None:
    """Fill in what takes running the model."""
    ids, own, exact = asyncio.run(own_scores(path))
    row.termchat = divergence(exact, own)
    with Engine("termchat", Path(sys.executable), path, 2, {}).running() as call:
        found = call("loaded")
        row.beyond = found["anonymous"] + found["mapped"] - MEMORY * row.size
    if peer is None:
        return
    with tempfile.NamedTemporaryFile(suffix=".npy") as file, peer.running() as call:
        call("scores", ids, file.name)
        theirs = np.load(file.name)
    row.llama = divergence(exact, theirs)
    best, said = theirs[:-1].argmax(axis=1), np.array(ids[1:])
    spoken = np.arange(len(said)) >= len(ids) - LENGTH + 3  # behind the prompt
    differ = np.flatnonzero((best != said) & spoken)
    row.alike = int(spoken.sum()) - len(differ)
    row.gap = max((float(theirs[i, best[i]] - theirs[i, said[i]]) for i in differ), default=0.0)


def table(rows: list[Row]) -> str:
    """Markdown."""
    heads = [
        *("model", "type", "file, MB", "types in it", "values: off by, of a row's largest"),
        *("bytes a step / file's", "MB beyond 1.05 file", "KL from exact: termchat", "llama.cpp"),
        *("tokens alike", "largest gap"),
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [
        f"| {r.model} | {r.type} | {r.size:.0f} | {r.types} | {r.values} | {r.bytes_ratio:.3f} | "
        f"{r.beyond:.0f} | {r.termchat:.5f} | {r.llama:.5f} | {r.alike} | {r.gap:.3f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--quantizer", type=Path, required=True, help="llama.cpp's llama-quantize")
    parser.add_argument("--environment", type=Path, default=temporary / "termchat-peers")
    parser.add_argument("--folder", type=Path, default=temporary / "termchat-types", help="of the files")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--models", default="default,random")
    parser.add_argument("--values-only", action="store_true", help="run no model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    options = parser.parse_args()
    sys.path.insert(0, str(CHECKOUT))
    options.folder.mkdir(parents=True, exist_ok=True)
    python = python_of(options.environment.absolute())
    has_peer = not options.values_only and "llama.cpp" in installed(python, ("llama.cpp",))
    rows = []
    for name, source in sources(options.folder, options.models.split(",")).items():
        for type in options.types.split(","):
            path = options.folder / f"{name}-{type}.gguf"
            command = [options.quantizer, "--pure", source, path, TYPES[type]]
            if type == "MXFP4":  # the mixture has it for experts alone
                command[1:2] = ["--tensor-type", "attn=mxfp4", "--tensor-type", "ffn=mxfp4"]
            if not path.exists() and subprocess.run(command, capture_output=True).returncode != 0:
                path.unlink(missing_ok=True)
                note(f"the quantizer makes no {type} of {source.name}")
                continue
            note(f"looks at {path.name}")
            file = read_gguf(path)
            size = path.stat().st_size / MEGABYTE
            row = Row(name, type, size, *compare_values(file), bytes_ratio(path, file))
            if not options.values_only:
                measure(row, path, Engine("llama.cpp", python, path, 2, {}) if has_peer else None)
            rows.append(row)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Holds GGUF files made by llama.cpp's own converter to the folders they were made from, and to llama.cpp.

    python scripts/converter.py LLAMA_CPP [KIND ...]

LLAMA_CPP: its source, with convert_hf_to_gguf.py and gguf-py. KIND: names in `tests/helpers/tiny_models.py`;
all of them if there is none. Each is saved by transformers, converted to float32 (of the converter, only what
it makes of tokenizers is replaced: these models have none), and run over a prompt and 64 greedy tokens on the
reference backend in float32. Prints the largest differences from the logits of transformers: of the folder,
of the GGUF file, and, where the package llama_cpp can be imported, of llama.cpp with this file. Exits with 1
if a file differs from transformers by more than 1e-4 or from its folder in a greedy token, but for what the
converter leaves out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from engine.loading.checkpoint import open_checkpoint
from engine.types import EngineError
from sessions import PROMPT, Session
from tiny_models import MODELS, NOT_IN_GGUF, SIZES, make

LOST = {**NOT_IN_GGUF, "qwen3vlmoe": "the converter takes experts to be stored as transformers 4 did"}
NEW_TOKENS = 64
CLOSE = 1e-4
CONVERT = """
import json, sys, traceback
sys.path[:0] = sys.argv[1:3]
import convert_hf_to_gguf as converter
from conversion.base import TextModel
def vocabulary(self):
    size = self.hparams["vocab_size"]
    self.gguf_writer.add_tokenizer_model("gpt2")
    self.gguf_writer.add_tokenizer_pre("default")
    self.gguf_writer.add_token_list([chr(0x100 + i) for i in range(size)])
    self.gguf_writer.add_token_types([1] * size)
    self.gguf_writer.add_token_merges([chr(0x100) + " " + chr(0x101)])
def below(cls):
    return {cls, *(each for sub in cls.__subclasses__() for each in below(sub))}
found = converter.get_model_class
def patched(*args, **kwargs):
    model_class = found(*args, **kwargs)
    for each in below(TextModel):
        each.set_vocab = vocabulary
    return model_class
converter.get_model_class = patched
for folder in sys.argv[3:]:
    sys.argv = ["", folder, "--outfile", folder + "/m.gguf", "--outtype", "f32"]
    try:
        converter.main()
    except BaseException as error:
        with open(folder + "/why", "w") as why:
            why.write(f"{type(error).__name__}: {error}")
"""
"""Run once for all folders, as it takes long to begin."""
EVALUATE = """
import sys
import numpy as np
from llama_cpp import Llama
file, scores, *text = sys.argv[1:]
model = Llama(file, n_ctx=256, n_threads=1, logits_all=True, type_k=0, type_v=0, verbose=False)
model.eval(list(map(int, text)))
np.save(scores, model.scores[: len(text)])
"""


def convert(source: Path, folders: list[Path]) -> None:
    """A file m.gguf in each folder, or one that says why there is none."""
    vocabulary = {chr(0x100 + i): i for i in range(SIZES["vocab_size"])}
    tokenizer = json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []})
    for folder in folders:
        (folder / "tokenizer.json").write_text(tokenizer)
    command = [sys.executable, "-c", CONVERT, str(source), str(source / "gguf-py"), *map(str, folders)]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=True)


def greedy(session: Session, prompt: list[int]) -> tuple[list[int], np.ndarray]:
    """Prompt and greedy tokens, and the logits at each of them."""
    text = list(prompt)
    rows = [session.step([(0, 0, text)])[0]]
    for _ in range(NEW_TOKENS):
        text.append(int(rows[-1][-1].argmax()))
        rows.append(session.step([(0, len(text) - 1, text[-1:])])[0])
    return text, np.concatenate(rows)


def of_llama_cpp(file: Path, text: list[int]) -> np.ndarray | None:
    """llama.cpp's logits, with keys and values in float32; None without its package, or if it fails."""
    scores = file.with_suffix(".npy")
    command = [sys.executable, "-c", EVALUATE, str(file), str(scores), *map(str, text)]
    done = subprocess.run(command, capture_output=True)  # it ends its process where it asserts something
    return np.load(scores) if done.returncode == 0 else None


def check(model: torch.nn.Module, folder: Path, kind: str) -> tuple[str, bool]:
    """A line about one model, and whether all is well."""
    prompt = np.random.default_rng(len(kind)).integers(0, SIZES["vocab_size"], PROMPT).tolist()
    text, of_folder = greedy(Session(open_checkpoint(folder)), prompt)
    with torch.no_grad():
        true = model(input_ids=torch.tensor([text]), use_cache=False).logits[0].numpy()
    line, lost = f"{np.abs(of_folder - true).max():9.1e}", LOST.get(kind)
    file, why = folder / "m.gguf", folder / "why"
    if why.exists():
        return f"{line}   not converted: {why.read_text()}", lost is not None
    try:
        again, of_file = greedy(Session(open_checkpoint(file)), prompt)
    except EngineError as error:
        return f"{line}   refused: {error.message}", lost is not None
    difference = float(np.abs(of_file - true).max())
    equal = sum(a == b for a, b in zip(again[PROMPT:], text[PROMPT:], strict=True))
    line += f" {difference:9.1e} {equal:6d}"
    other = of_llama_cpp(file, text)
    if other is not None:
        best = (other[PROMPT - 1 : -1].argmax(-1) == np.array(text[PROMPT:])).sum()
        line += f" {np.abs(other - true).max():12.1e} {best:6d}"
    good = difference < CLOSE and equal == NEW_TOKENS
    return f"{line}   {lost or ''}", good or lost is not None


def main() -> None:
    """Run it."""
    source, *kinds = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        # Not by their names: llama.cpp looks for tokens of models that are called phi3.
        folders = {kind: Path(directory, f"m{i}") for i, kind in enumerate(kinds or MODELS)}
        models = {kind: make(kind, folder) for kind, folder in folders.items()}
        convert(Path(source), list(folders.values()))
        print(f"{'':24} {'folder':>9} {'GGUF':>9} {'greedy':>6} {'llama.cpp':>12} {'greedy':>6}")
        for kind, folder in folders.items():
            line, good = check(models[kind], folder, kind)
            failed |= not good
            print(f"{kind:24} {line}{'' if good else '   DIFFERS'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()

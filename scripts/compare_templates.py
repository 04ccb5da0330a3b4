"""Chat templates rendered here and by transformers, over conversations and what templates may be told.

    python scripts/compare_templates.py FOLDER|FILE.jinja ...     # all files *.jinja of a folder

Prints a line for every template that is not the same throughout, and the counts; exits with 1 if a text
differs, or if a template fails here that transformers renders. Where a template refuses a conversation
there, it may get through here, with joined turns or without a system turn. Needs transformers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from engine import EngineError
from engine.tokenization import render_chat

Talk = list[dict[str, str]]


def talk(*turns: str) -> Talk:
    """Turns by the letters of their roles: "u Hi", "a Hello", "s Be brief."."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]


THOUGHT = "a <think>\nAre there?\n</think>\n\nThere are."
TALKS = (
    talk("u Hi"),
    talk("s Be brief.", "u Hi"),
    talk("u Hi", "a Hello", "u Bye"),
    talk("s Be brief.", "u Hi", "a Hello", "u Bye", "a So long", "u ?"),
    talk("u  two spaces \n", "a\n\n lines \n", "u\ttab"),
    talk("u Are there?", THOUGHT, "u Sure?"),
    talk("s ", "u ", "a ", "u x"),
    talk("u a", "u b"),
    talk("u a", "a b", "a c", "u d"),
    talk("s one", "s two", "u a"),
    talk("u {{ 1 + 1 }} {% raw %} <|im_end|> </s> [INST] 'quotes' \"double\" \\n é 漢 🙂"),
    talk("u Are there?", "a [THINK]Are there?[/THINK]There are.", "u <think>no</think>"),
)
TOLD: tuple[dict[str, Any], ...] = (
    {},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"thinking": True, "reasoning_effort": "high"},
    {"thinking": False, "reasoning_effort": "low"},
)
"""Besides the names of tokens."""

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def theirs(template: str, turns: Talk, **values: Any) -> str | Exception:
    """What transformers writes, or why it does not."""
    try:
        texts, _ = render_jinja_template([turns], chat_template=template, **values)
    except Exception as error:
        return error
    return str(texts[0])


def ours(template: str, turns: Talk, **values: Any) -> str | Exception:
    """What is written here, or why nothing is."""
    try:
        return render_chat(template, turns, **values)
    except EngineError as error:
        return error


def compared(template: str) -> Iterator[tuple[str, str]]:
    """What became of each rendering, with an example."""
    for turns in TALKS:
        for told in TOLD:
            for prompt in (True, False):
                values = {**TOKENS, **told, "add_generation_prompt": prompt}
                expected, found = theirs(template, turns, **values), ours(template, turns, **values)
                if isinstance(expected, Exception) and isinstance(found, Exception):
                    yield "both refuse", f"{expected}"
                elif isinstance(expected, Exception):
                    yield "only transformers refuses", f"{expected}"
                elif isinstance(found, Exception):
                    yield "ONLY WE REFUSE", f"{turns} {told}: {found}"
                elif expected != found:
                    yield "DIFFERENT", f"{turns} {told}: {expected!r} / {found!r}"
                else:
                    yield "equal", ""


def main() -> int:
    """Compare all templates that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("path", nargs="+", type=Path)
    given = parser.parse_args().path
    files = [file for path in given for file in (sorted(path.glob("*.jinja")) if path.is_dir() else [path])]
    total = Counter[str]()
    for file in files:
        results = list(compared(file.read_text(encoding="utf-8")))
        counts = Counter(kind for kind, _ in results)
        total += counts
        if set(counts) > {"equal"} or "equal" not in counts:
            print(f"{file.name}: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}")
        for wrong in ("DIFFERENT", "ONLY WE REFUSE"):
            example = next((text for kind, text in results if kind == wrong), None)
            if example is not None:
                print(f"    {example[:600]}")
    print(f"{len(files)} templates: {dict(total)}")
    return 1 if total["DIFFERENT"] or total["ONLY WE REFUSE"] or not files else 0


if __name__ == "__main__":
    sys.exit(main())

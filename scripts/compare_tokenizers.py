"""Tokenizers compared with those of transformers, on lines in thirty scripts, as text and as chat prompts.

    python scripts/compare_tokenizers.py FOLDER|FILE.gguf ... [--folder FOLDER] [--lines 2000] [--seed 7]

A folder has a tokenizer.json; a GGUF file is compared with the one of --folder, which it was made of, or
without that with llama.cpp (the package llama_cpp), as text alone and composed (NFC), as llama.cpp does not
normalise. Text is encoded as what a user says, and ids drawn at random are decoded, at once and one by one.
Lines that hold a control token are left out: what a user says is never structure here. Exits with 1 if
anything differs. Needs transformers.
"""

from __future__ import annotations

import argparse
import random
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine import EngineError, Message
from engine.tokenization import StreamDecoder, Tokenizer, encode_chat, load_tokenizer

SAMPLES = (
    "The quick brown fox isn't lazy: it'll JUMP, they've said; I'd DON'T WE'RE you'Re naïve café Straße",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία ΑΒΓ",
    "Съешь же ещё этих мягких французских булок, ДА выпей чаю",
    "هذا نص عربي مع تشكيلٌ وأرقام ١٢٣٤",
    "זהו טקסט בעברית עם נִקּוּד",
    "यह हिन्दी में लिखा हुआ पाठ है क्षत्रिय १२३",
    "এটি বাংলা ভাষায় লেখা একটি পাঠ্য",
    "இது தமிழில் எழுதப்பட்ட உரை",
    "ఇది తెలుగులో వ్రాసిన వచనం",
    "นี่คือข้อความภาษาไทยที่ไม่มีช่องว่าง",
    "ນີ້ແມ່ນຂໍ້ຄວາມພາສາລາວ",
    "នេះជាអត្ថបទភាសាខ្មែរ",
    "ဤသည်မြန်မာစာဖြစ်သည်",
    "ეს არის ქართული ტექსტი",
    "Սա հայերեն տեքստ է",
    "이것은 한국어로 쓰인 글입니다 가나다",
    "这是一段中文文本，没有空格。漢字繁體也有，數字123",
    "これは日本語のテキストです。カタカナもあります。",
    "ይህ በአማርኛ የተጻፈ ጽሑፍ ነው",
    "འདི་ནི་བོད་ཡིག་གི་ཡི་གེ་ཡིན།",
    "ᎣᏏᏲ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "Đây là một đoạn văn bản tiếng Việt có dấu",
    "İstanbul'da ığüşöç İIıi",
    "𐌰𐌽𐍃 𐍅𐌰𐌹𐍂𐌸𐌰𐌽",
    "𝔸𝕓𝒸 ∑∫√ ½ ⅷ ² ₃ ① Ⅻ",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽 🇩🇪🇫🇷 1️⃣ ☺️ 🫠🫡",
    'def f(x):\n\treturn x**2 if x != 0 else {} // /* */ ==> <a href="x"> && || a_b __init__ $x @y 0xF 1e-5',
    "1 12 123 1234 12345 123456 1234567 3,141 2024-01-02 +49 (0)30/1234",
    "a  b   c    d\t\te \t f\n\ng\r\nh\r\r\ni   \n   j\u00a0k\u2003l\u3000m \v\f n",
    "\x01\x02\x07\x1b[31m\x7f\u200b\u200e\u202e\ufeff\u2028\u2029\x85",
    "\ue000\U000f0000\ufffd\ufdd0\U0010ffff\ufffe",
    "<b>bold</b> <s>x</s> </s> <br/> <h1> <table><tr> <|x|> [INST] <unused0> <think> <pad>",
)
JOINTS = ("", " ", "  ", "\n", "\r\n", "'", "-")


def lines(count: int, source: random.Random) -> list[str]:
    """Lines of pieces of the samples, also decomposed, in capitals, behind white space, or of any letters."""
    made = []
    for number in range(count):
        pieces = []
        for _ in range(source.randint(1, 4)):
            text = SAMPLES[number % len(SAMPLES)] if source.random() < 0.6 else source.choice(SAMPLES)
            start = source.randrange(len(text))
            pieces.append(text[start : start + source.randint(1, 40)])
        line, kind = source.choice(JOINTS).join(pieces), source.random()
        if kind < 0.16:
            line = unicodedata.normalize("NFD" if kind < 0.08 else "NFC", line)
        elif kind < 0.22:
            line = line.upper()
        elif kind < 0.26:
            line = " " * source.randint(1, 40) + line
        elif kind < 0.30:
            line += "\n" * source.randint(1, 40) + " " * source.randint(0, 5)
        elif kind < 0.33:
            line = "".join(
                chr(source.choice([source.randrange(0xD800), source.randrange(0xE000, 0x30000)]))
                for _ in range(12)
            )
        made.append(line)
    return made


class Reference(NamedTuple):
    """The other tokenizer. chat: the ids of turns up to where the assistant speaks, if it has a template."""

    name: str
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str] | None
    chat: Callable[[list[Message]], list[int]] | None
    special: frozenset[str]


def of_transformers(folder: Path) -> Reference:
    """The tokenizer of a folder, as AutoTokenizer has it; where that rebuilds it otherwise than its
    tokenizer.json says, as SentencePiece's with a space in front, the file counts.
    """
    found: Any = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    auto: Any = AutoTokenizer.from_pretrained(folder)

    def chat(turns: list[Message]) -> list[int]:
        said = [{"role": turn.role, "content": turn.content} for turn in turns]
        ids = auto.apply_chat_template(said, add_generation_prompt=True, tokenize=True)
        return list(ids["input_ids"] if hasattr(ids, "keys") else ids)

    return Reference(
        "transformers",
        lambda text: list(found(text, add_special_tokens=False)["input_ids"]),
        lambda ids: str(found.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)),
        chat if auto.chat_template else None,
        frozenset(auto.all_special_tokens),
    )


def of_llama_cpp(file: Path) -> Reference:
    """llama.cpp's own of a GGUF file, which may have no more than a vocabulary."""
    from llama_cpp import Llama

    found: Any = Llama(str(file), vocab_only=True, verbose=False)
    return Reference(
        "llama.cpp",
        lambda text: list(found.tokenize(text.encode(), add_bos=False, special=False)),
        None,
        None,
        frozenset(),
    )


def of_ours(tokenizer: Tokenizer) -> Reference:
    """One of our own."""
    return Reference(
        "the folder",
        lambda text: tokenizer.encode(text, special=False),
        tokenizer.decode,
        (lambda turns: encode_chat(tokenizer, None, turns)) if tokenizer.chat_template else None,
        frozenset(tokenizer.control.ids),
    )


def differences(tokenizer: Tokenizer, other: Reference, texts: Sequence[str], seed: int) -> dict[str, int]:
    """How many texts, prompts and lists of ids are not the same, and an example of each on standard error."""
    counts = {"text": 0, "chat": 0, "decoding": 0, "stream": 0}

    def check(kind: str, given: object, found: object, expected: object) -> None:
        if found != expected:
            if not counts[kind]:
                print(f"    {kind}: {given!r:.200}: {found!r:.300} / {expected!r:.300}", file=sys.stderr)
            counts[kind] += 1

    for number, text in enumerate(texts):
        if tokenizer.control.find(text) or any(mark in text for mark in other.special):
            continue
        check("text", text, tokenizer.encode(text, special=False), other.encode(text))
        if other.chat is None:
            continue
        turns = [Message("user", text)]
        if number % 3 == 1:
            turns = [Message("user", "Well?"), Message("assistant", "Yes."), *turns]
        try:
            expected = other.chat(turns)
        except Exception:  # the template refuses them
            continue
        try:
            check("chat", text, encode_chat(tokenizer, None, turns), expected)
        except EngineError as error:
            check("chat", text, str(error), expected)
    source = random.Random(seed)
    for _ in range(len(texts) // 4):
        ids = [source.randrange(tokenizer.vocab_size) for _ in range(source.randint(1, 20))]
        decoder, whole = StreamDecoder(tokenizer), tokenizer.decode(ids)
        check("stream", ids, "".join(decoder.push([token]) for token in ids) + decoder.finish(), whole)
        # SentencePiece's space at the beginning of a text is kept here: the ids come after others.
        if other.decode is not None:
            check("decoding", ids, whole.removeprefix(" "), other.decode(ids).removeprefix(" "))
    return counts


def main() -> int:
    """Compare all tokenizers that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--folder", type=Path, help="what GGUF files were made of")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    texts, wrong = lines(options.lines, random.Random(options.seed)), 0
    for path in options.path:
        tokenizer = load_tokenizer(path)
        if path.is_dir():
            other = of_transformers(path)
        elif options.folder is not None:
            other = of_ours(load_tokenizer(options.folder))
        else:
            other = of_llama_cpp(path)
        composed = path.is_file() and options.folder is None
        own = [unicodedata.normalize("NFC", text) for text in texts] if composed else texts
        counts = differences(tokenizer, other, own, options.seed)
        ends = sorted(tokenizer.token_text(token) for token in tokenizer.end_ids)
        print(f"{path}: {counts} of {len(texts)} differ from {other.name}; ends {ends}", flush=True)
        wrong += sum(counts.values())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""The thinking part of a reply, cut out of a stream."""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest

from engine.loading.generation import read_generation
from engine.loading.gguf import GGUFFile, read_gguf
from engine.tokenization import tokenizer_of
from engine.tokenization.vocabulary import THOUGHTS, VISIBLE
from termchat.store import Store
from termchat.thinking import ThinkingSplitter, ThinkingStyle, split_thinking, thinking_style
from termchat.thinking_marks import MARKS

CASES = [
    ("plain answer", False, "", "plain answer"),
    ("<think>why</think>answer", False, "why", "answer"),
    ("<think>\nwhy\n</think>\n\nanswer\n", False, "\nwhy\n", "answer\n"),
    ("\n<think>why</think> answer", False, "why", "answer"),
    ("  two spaces", False, "", "  two spaces"),
    ("a <think>b</think>", False, "", "a <think>b</think>"),
    ("<thin ice", False, "", "<thin ice"),
    ("<", False, "", "<"),
    ("", False, "", ""),
    ("<think>never closed </thin", False, "never closed </thin", ""),
    ("<think></think>answer", False, "", "answer"),
    ("<think>a</think><think>b</think>", False, "a", "<think>b</think>"),
    ("why</think>\n\nanswer", True, "why", "answer"),
    ("never closed", True, "never closed", ""),
    ("<think>1 < 2 </ thi </thinking</think>x", False, "1 < 2 </ thi </thinking", "x"),
]


ANALYSIS, FINAL, COMMENTARY = (
    f"<|channel|>{name}<|message|>" for name in ("analysis", "final", "commentary")
)
NEXT = "<|start|>assistant"
CASES += [
    (f"{ANALYSIS}why{NEXT}{FINAL}answer", False, "why", "answer"),
    (f"{FINAL}answer", False, "", "answer"),
    (f"{FINAL}", False, "", ""),
    (f"{ANALYSIS}why", False, "why", ""),
    (f"{ANALYSIS}a <|start|>assist <|channel|>{NEXT}{FINAL}b", False, "a <|start|>assist <|channel|>", "b"),
    (f"{ANALYSIS}a{NEXT}{ANALYSIS} b{NEXT}{FINAL}c", False, "a\n\nb", "c"),
    (f"{ANALYSIS}a{NEXT}{COMMENTARY}b{NEXT}{ANALYSIS}c{NEXT}{FINAL}d", False, "a\n\nc", "b\n\nd"),
    (f"{ANALYSIS}a{NEXT}{FINAL}<think>b</think> 1 < 2", False, "a", "<think>b</think> 1 < 2"),
    (f"{FINAL}a <|start|", False, "", "a <|start|"),
    ("<|channel|>other<|message|>x", False, "", "<|channel|>other<|message|>x"),
    ("<|channel>thought\nwhy\n<channel|>answer", False, "\nwhy\n", "answer"),
    ("<|channel>thought\n<channel|>", False, "\n", ""),
    ("<|channel>thoughtful", False, "ful", ""),
    ("<|channel>answer", False, "", "<|channel>answer"),
    ("[THINK]why [/THIN[/THINK]answer [THINK]x", False, "why [/THIN", "answer [THINK]x"),
    ("[THIN ice", False, "", "[THIN ice"),
    ("[THINK]a</think>b", False, "a</think>b", ""),
    ("<think>a[/THINK]b</think>c", False, "a[/THINK]b", "c"),
]


@pytest.mark.parametrize(("text", "inside", "thinking", "answer"), CASES)
def test_whole_texts(text, inside, thinking, answer):
    assert split_thinking(text, inside=inside) == (thinking, answer)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_give_the_same_as_the_whole(seed):
    source = random.Random(seed)
    for text, inside, thinking, answer in CASES:
        splitter, rest, pieces = ThinkingSplitter(inside=inside), text, []
        while rest:
            cut = source.randint(1, 4)
            pieces.append(splitter.push(rest[:cut]))
            rest = rest[cut:]
        pieces.append(splitter.finish())
        joined = tuple("".join(column) for column in zip(*pieces, strict=True))
        assert joined == (thinking, answer), f"seed {seed}, text {text!r}"


@pytest.mark.parametrize("marks", MARKS, ids=[marks.token for marks in MARKS])
def test_replies_that_begin_inside(marks):
    text = f"why{marks.closing}\n\nanswer"
    for cut in range(len(text) + 1):
        splitter = ThinkingSplitter(inside=True, marks=marks)
        pieces = [splitter.push(text[:cut]), splitter.push(text[cut:]), splitter.finish()]
        assert tuple("".join(column) for column in zip(*pieces, strict=True)) == ("why", "answer"), cut


def test_marks_that_are_structure_need_no_end():
    for marks in MARKS:
        expected = ("why", "") if marks.certain else ("", f"{marks.opening}why")
        assert split_thinking(f"{marks.opening}why", known=False) == expected


def test_the_engine_shows_all_marks_and_knows_where_thinking_begins():
    assert set(THOUGHTS) == {marks.opening for marks in MARKS}
    for marks in MARKS:
        assert marks.closing.startswith(THOUGHTS[marks.opening])
        written = "".join([*marks.first, *marks.inside, *marks.later])
        assert marks.token in VISIBLE
        assert set(re.findall(r"<\|?[a-z/]+\|?>|\[/?THINK\]", written)) <= VISIBLE


def test_the_marks_of_a_vocabulary():
    """Whose texts begin with a start token, too."""

    class Knows:
        def __init__(self, token, start):
            self._token, self._start = token, start

        async def tokenize(self, prompt, *, template_vars=None):
            text = prompt if isinstance(prompt, str) else "<a>"
            ids = [*map(ord, text.replace(self._token, "\0"))]
            return [*self._start, *ids] if text else []

    for marks in MARKS:
        for start in ([], [1]):
            found = asyncio.run(thinking_style(Knows(marks.token, start), {}))
            assert (found.inside, found.marks) == (False, marks)


def test_an_answer_is_not_held_back():
    splitter = ThinkingSplitter()
    assert splitter.push("1. ") == ("", "1. ")
    assert splitter.push("<think>") == ("", "<think>")


def test_thinking_is_not_held_back():
    splitter = ThinkingSplitter()
    assert splitter.push("<think>so") == ("so", "")
    assert splitter.push(" far <") == (" far ", "")
    assert splitter.push("/b") == ("</b", "")


UNKNOWN = [
    ("<think> is a tag of HTML", "", "<think> is a tag of HTML"),
    ("\n<think>", "", "\n<think>"),
    ("<think>never closed </thin", "", "<think>never closed </thin"),
    ("<think>why</think>answer", "why", "answer"),
    ("plain", "", "plain"),
    ("<thin", "", "<thin"),
]


@pytest.mark.parametrize(("text", "thinking", "answer"), UNKNOWN)
def test_N023_a_tag_that_is_never_closed_is_text_where_the_template_knows_none(text, thinking, answer):
    assert split_thinking(text, known=False) == (thinking, answer)
    splitter = ThinkingSplitter(known=False)
    pieces = [*map(splitter.push, text), splitter.finish()]
    if splitter.mistaken:
        pieces = pieces[-1:]
    assert tuple("".join(column) for column in zip(*pieces, strict=True)) == (thinking, answer)


@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_N023_words_that_begin_with_a_tag_are_the_answer(termchat, scripted, home, form):
    text = "<think> is a tag of HTML"
    scripted(text)
    outcome = termchat(*form, "--cid", "x", "Hi")
    assert outcome.code == 0
    if not form:
        assert outcome.out == text + "\n"
    else:
        last = json.loads(outcome.out.splitlines()[-1])
        assert (last["text"], last["thinking"], last["finish_reason"]) == (text, None, "stop")
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        reply = store.path("x")[-1]
    assert (reply.text, reply.thinking, reply.status) == (text, "", "done")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "3"], "at the limit of 3 tokens; -n allows more"),
        (["-n", "3", "--json"], "at the limit of 3 tokens; -n allows more"),
        ([], "where the model ended it"),
    ],
)
def test_N023_a_reply_that_ends_inside_its_thinking_is_noted(
    termchat, scripted, monkeypatch, arguments, said
):
    async def inside(*_):
        return ThinkingStyle(inside=True)

    monkeypatch.setattr("termchat.cli.serving.thinking_style", inside)
    scripted("Well, let me see first")
    outcome = termchat(*arguments, "Hi")
    assert outcome.code == 0
    assert outcome.err.endswith(f"termchat: the reply ended inside its thinking, {said}\n")
    if "--json" in arguments:
        reply = json.loads(outcome.out)
        assert (reply["text"], reply["finish_reason"]) == ("", "length")
        assert reply["thinking"]
    scripted("Well, let me see first</think>Yes.")
    assert "ended inside" not in termchat("Hi").err


def test_N023_what_a_template_knows_of_thinking():
    class Keeps:
        """Reads out every message as it is."""

        async def tokenize(self, prompt, *, template_vars=None):
            text = prompt if isinstance(prompt, str) else "|".join(message.content for message in prompt)
            return list(map(ord, text))

    class Strips(Keeps):
        """Leaves the thinking of earlier replies out."""

        async def tokenize(self, prompt, *, template_vars=None):
            if not isinstance(prompt, str):
                prompt = "|".join(message.content.split("</think>")[-1] for message in prompt)
            return list(map(ord, prompt))

    assert asyncio.run(thinking_style(Keeps(), {})) == ThinkingStyle(inside=False, known=False)
    assert asyncio.run(thinking_style(Strips(), {})) == ThinkingStyle(inside=False, known=True)
    assert asyncio.run(thinking_style(Templates("<think>", []), {})) == ThinkingStyle(inside=True)


class Templates:
    """An engine that knows how to tokenize, one token a character, with a start token or without."""

    def __init__(self, ending, start):
        self._ending, self._start = ending, start

    async def tokenize(self, prompt, *, template_vars=None):
        text = prompt if isinstance(prompt, str) else f"<user>{prompt[-1].content}<assistant>{self._ending}"
        return [*self._start, *map(ord, text)] if text else []


@pytest.mark.parametrize("start", [[], [1]])
@pytest.mark.parametrize(
    ("ending", "inside"),
    [("<think>", True), ("<think>\n", True), ("", False), ("<think></think>\n", False)],
)
def test_a_template_that_opens_the_thinking_part_is_noticed(start, ending, inside):
    assert asyncio.run(thinking_style(Templates(ending, start), {})).inside is inside


@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_the_channels_of_a_reply(termchat, scripted, monkeypatch, default_model, form):
    """gpt-oss: <|end|> ends the thinking and not the turn, which <|return|> does."""
    metadata = read_gguf(default_model).metadata
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[3:9] = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>"]
    file = GGUFFile(default_model, 3, metadata | {"tokenizer.ggml.tokens": tokens}, {})
    harmony = tokenizer_of(file, read_generation(file))
    ids = harmony.encode(f"{ANALYSIS}Let me see.<|end|>{NEXT}{FINAL}Yes, <b>.<|return|>and more")
    scripted(ids)
    monkeypatch.setattr("engine.testing.load_tokenizer", lambda path: harmony)
    outcome = termchat(*form, "--no-save", "Hi")
    assert outcome.code == 0
    if not form:
        assert outcome.out == "Yes, <b>.\n"
        assert "Let me see." in outcome.err
    else:
        events = [json.loads(line) for line in outcome.out.splitlines()]
        assert (events[-1]["text"], events[-1]["thinking"]) == ("Yes, <b>.", "Let me see.")
        assert events[-1]["finish_reason"] == "stop"
        assert events[-1]["usage"]["completion_tokens"] == ids.index(4) + 1
        assert "".join(event["text"] for event in events if event.get("event") == "delta") in (
            "",
            "Yes, <b>.",
        )

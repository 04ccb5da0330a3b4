"""The thinking part of a reply, cut out of a stream."""

from __future__ import annotations

import asyncio
import random

import pytest

from termchat.session import starts_thinking
from termchat.thinking import ThinkingSplitter, split_thinking

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


def test_an_answer_is_not_held_back():
    splitter = ThinkingSplitter()
    assert splitter.push("1. ") == ("", "1. ")
    assert splitter.push("<think>") == ("", "<think>")


def test_thinking_is_not_held_back():
    splitter = ThinkingSplitter()
    assert splitter.push("<think>so") == ("so", "")
    assert splitter.push(" far <") == (" far ", "")
    assert splitter.push("/b") == ("</b", "")


class Templates:
    """An engine that knows how to tokenize, one token a character, with a start token or without."""

    def __init__(self, ending, start):
        self._ending, self._start = ending, start

    async def tokenize(self, prompt, *, template_vars=None):
        text = prompt if isinstance(prompt, str) else f"<user>{prompt[-1].content}<assistant>{self._ending}"
        return [*self._start, *map(ord, text)]


@pytest.mark.parametrize("start", [[], [1]])
@pytest.mark.parametrize(
    ("ending", "inside"),
    [("<think>", True), ("<think>\n", True), ("", False), ("<think></think>\n", False)],
)
def test_a_template_that_opens_the_thinking_part_is_noticed(start, ending, inside):
    assert asyncio.run(starts_thinking(Templates(ending, start), {})) is inside

"""Guesses from the text itself, against a search of the whole text."""

from __future__ import annotations

import itertools
import random
from array import array

import pytest

from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from engine.speculative.ngram import LONG, REACH, SHORT, SURE, NgramDrafter, NgramIndex


def continued(tokens: array[int], source: int, count: int) -> list[int]:
    """The text as it would go on from `source` if it went on as it did there."""
    text = list(tokens)
    for ahead in range(count):
        text.append(text[source + ahead])
    return text[len(tokens) :]


@pytest.mark.parametrize("alphabet", [2, 5, 40, 49152])
@pytest.mark.parametrize("whole", [False, True])
def test_a_guess_is_how_the_text_went_on_after_the_same_tokens(alphabet: int, whole: bool) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    index, tokens = NgramIndex(), array("i")
    found = possible = 0
    for _ in range(150):
        if tokens and rng.random() < 0.3:
            start = rng.randrange(len(tokens))
            new = tokens[start : start + rng.randrange(1, 12)]
        else:
            new = array("i", [rng.randrange(alphabet) for _ in range(rng.choice([1, 1, 2, 9]))])
        tokens += new
        if whole:
            index = NgramIndex()  # reads everything at once
        count = len(tokens)
        proposal = index.propose(tokens, 6)
        for length, grade in ((SHORT, 1), (LONG, 2)):
            ends = [
                end for end in range(length, count) if tokens[end - length : end] == tokens[count - length :]
            ]
            if proposal.grade >= grade:
                assert list(proposal.tokens) in [continued(tokens, end, 6) for end in ends]
            possible += bool(ends)
            found += bool(ends) and proposal.grade >= grade
    assert found >= 0.8 * possible, "what stands in the text is found, but for collisions of hashes"


def test_a_guess_for_a_text_of_few_tokens_is_how_it_went_on() -> None:
    for text in itertools.product([0, 1], repeat=8):  # id 0, too, which stands for nothing in the tables
        index, tokens = NgramIndex(), array("i")
        for token in text:
            tokens.append(token)
            proposal, count = index.propose(tokens, 2), len(tokens)
            for length, grade in ((SHORT, 1), (LONG, 2)):
                ends = [end for end in range(length, count) if tokens[end - length : end] == tokens[-length:]]
                if proposal.grade >= grade:
                    assert list(proposal.tokens) in [continued(tokens, end, 2) for end in ends]
                assert not ends or proposal.grade >= 1


def test_a_text_that_is_copied_is_guessed_from_its_second_token_to_its_last() -> None:
    rng = random.Random(2)
    text = [rng.randrange(49152) for _ in range(300)]
    index, tokens = NgramIndex(), array("i", [7, *text, 8])
    for place, token in enumerate(text):
        proposal = index.propose(tokens, 8)
        if place >= SHORT:
            rest = text[place : place + 8]
            assert list(proposal.tokens[: len(rest)]) == rest
        assert proposal.grade == (3 if place >= SURE else 2 if place >= LONG else 1 if place >= SHORT else 0)
        tokens.append(token)


def test_a_text_that_circles_is_guessed_to_circle_on() -> None:
    index, tokens = NgramIndex(), array("i", [9, 1, 2, 3, 1, 2])
    assert list(index.propose(tokens, 8).tokens) == [3, 1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("new", [[70], [70, 71, 72], [70, 71, 72, 73, 74]])
def test_a_reply_that_puts_something_in_another_place_is_guessed_on_behind_it(new: list[int]) -> None:
    text = list(range(100, 140))
    index, tokens = NgramIndex(), array("i", text)
    for token in (*text[:20], *new):  # in place of text[20] and text[21]
        index.propose(tokens, 4)
        tokens.append(token)
    assert not index.propose(tokens, 4).tokens
    tokens.append(text[22])
    assert index.propose(tokens, 4) == (array("i", text[23:27]), 0)
    tokens.append(text[23])
    assert index.propose(tokens, 4) == (array("i", text[24:28]), 1)


def test_a_place_left_long_ago_is_not_come_back_to() -> None:
    text = list(range(100, 140))
    index, tokens = NgramIndex(), array("i", text)
    for token in (*text[:20], *range(200, 201 + REACH), text[21]):
        index.propose(tokens, 4)
        tokens.append(token)
    assert not index.propose(tokens, 4).tokens


def test_memory_stays_in_proportion_to_the_text() -> None:
    index, tokens = NgramIndex(), array("i")
    rng = random.Random(4)
    for _ in range(40):
        tokens.extend(rng.randrange(1000) for _ in range(500))
        index.propose(tokens, 4)
        held = 4 * (len(index._long) + len(index._short))
        assert held <= max(96 * len(tokens), 2048)


def test_each_sequence_is_guessed_from_its_own_tokens_and_forgotten_with_it() -> None:
    drafter = NgramDrafter()
    sequences = [
        Sequence(number, [number, 5, 6, number + 10, 5, 6], SamplerState(SamplingParams(), 1))
        for number in (1, 2)
    ]
    found = drafter.propose(sequences, 1)
    assert [list(proposal.tokens) for proposal in found] == [[11], [12]]
    del sequences
    assert len(drafter._indexes) == 0

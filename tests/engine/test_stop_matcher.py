import random

import pytest

from engine.tokenization import StopMatcher

SEED = 20240711


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """A whole text up to the first place where a stop is complete, the longest if several are."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


def longest_beginning(text: str, stops: list[str]) -> int:
    """Length of the longest ending of a text that is a proper beginning of a stop."""
    lengths = range(min(len(text), max(map(len, stops)) - 1), 0, -1)
    return next((n for n in lengths if any(s.startswith(text[-n:]) and len(s) > n for s in stops)), 0)


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    shown = []
    matched = None
    for piece in pieces:
        text, matched = matcher.push(piece)
        shown.append(text)
        if matched is not None:
            return shown, matched
    return [*shown, matcher.finish()], matched


def test_without_stops_everything_passes():
    assert run([], ["a", "", "bc"]) == (["a", "", "bc", ""], None)


def test_B007_beginning_of_a_stop_is_held_back():
    text = "1. 1\n2. 2\n3. 3\n4. 4\n5. 5\n6. 6\n"
    shown, matched = run(["5. 5\n6"], list(text))
    assert "".join(shown) == "1. 1\n2. 2\n3. 3\n4. 4\n"
    assert not any("5" in piece for piece in shown)
    assert matched == "5. 5\n6"


def test_held_text_comes_out_when_it_is_no_stop():
    assert run(["abcd"], ["xab", "c", "e"]) == (["x", "", "abce", ""], None)
    assert run(["abcd"], ["xab", "ab"]) == (["x", "ab", "ab"], None)


def test_end_of_text_flushes_what_is_held():
    assert run(["STOP"], ["STO"]) == (["", "STO"], None)


@pytest.mark.parametrize(
    ("stops", "text", "shown", "matched"),
    [
        (["b", "abc"], "xabc", "xa", "b"),  # complete first
        (["bc", "abc"], "xabc", "x", "abc"),  # complete at the same place
        (["abc", "bc"], "xabc", "x", "abc"),
        (["aab"], "aaaab", "aa", "aab"),
        (["abab"], "aababab", "a", "abab"),
        (["é🙂"], "né🙂x", "n", "é🙂"),
        (["x"], "x", "", "x"),
    ],
)
def test_which_stop_counts(stops: list[str], text: str, shown: str, matched: str):
    for pieces in ([text], list(text)):
        got, stop = run(stops, pieces)
        assert ("".join(got), stop) == (shown, matched)


def test_nothing_comes_after_a_match():
    matcher = StopMatcher(["!"])
    assert matcher.push("a!b") == ("a", "!")
    assert matcher.push("more") == ("", "!")
    assert matcher.finish() == ""


def test_random_stops_and_cuts():
    rng = random.Random(SEED)
    for case in range(3000):
        alphabet = "ab" if case % 2 else "ab\né"
        stops = ["".join(rng.choices(alphabet, k=rng.randint(1, 6))) for _ in range(rng.randint(1, 4))]
        text = "".join(rng.choices(alphabet, k=rng.randint(0, 40)))
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        shown, matched = run(stops, pieces)
        assert ("".join(shown), matched) == first_stop(text, stops), (SEED, case, stops, pieces)
        matcher, seen, out = StopMatcher(stops), "", ""
        for piece in pieces:
            released, stop = matcher.push(piece)
            if stop is not None:
                break
            seen, out = seen + piece, out + released
            held = seen[len(out) :]
            assert len(held) == longest_beginning(seen, stops), (SEED, case, stops, pieces)


def test_work_is_linear_for_hostile_stops(monkeypatch: pytest.MonkeyPatch):
    """Counts look-ups of a character, the innermost step, instead of seconds."""

    class Counting(dict):
        looked_up = 0

        def __contains__(self, key: object) -> bool:
            Counting.looked_up += 1
            return super().__contains__(key)

    length = 2000
    matcher = StopMatcher(["a" * length + "b", "a" * (length // 2) + "c"])
    matcher._next = [Counting(edges) for edges in matcher._next]
    text = "a" * (3 * length) + "x" + "a" * length
    shown = [matcher.push(character)[0] for character in text] + [matcher.finish()]
    assert "".join(shown) == text
    assert Counting.looked_up <= 2 * len(text)


def test_empty_stop_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])

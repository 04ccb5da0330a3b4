"""How far two models are apart: the figures, the texts, the windows; and how close int8 arithmetic is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine import AsyncEngine, EngineConfig
from engine.logprobs import log_softmax
from kernels.native import available, unavailable_reason
from termchat.quality import Positions, TextError, bundled, joined, measure, read_text, windows
from termchat.quality.divergence import VERDICTS, Divergence
from termchat.quality.measure import TABLE_BYTES, WINDOW
from termchat.quality.texts import MOST_BYTES, PIECE, pieces

MEAN_TARGET = 0.005
P99_TARGET = 0.04


def test_divergence_of_known_distributions():
    """KL((0.5, 0.5) || (0.25, 0.75)) = 0.5 ln 2 + 0.5 ln (2 / 3); no loss where a window ends."""
    p = np.log(np.array([[0.5, 0.5], [0.1, 0.9]], np.float32))
    q = np.log(np.array([[0.25, 0.75], [0.1, 0.9]], np.float32))
    found = Positions.of([0, 1], q, p)
    np.testing.assert_allclose(found.divergence, [0.5 * np.log(2) + 0.5 * np.log(2 / 3), 0], atol=1e-7)
    assert found.same_best.tolist() == [False, True]
    np.testing.assert_allclose(found.losses[0], [-np.log(0.75), np.log(2)], rtol=1e-6)
    assert np.isnan(found.losses[1]).all()
    summary = joined([found, found]).summary()
    assert (summary.tokens, summary.same_best) == (4, 0.5)
    np.testing.assert_allclose((summary.perplexity, summary.against_perplexity), (1 / 0.75, 2), rtol=1e-6)


def test_a_model_is_no_distance_from_itself_and_a_window_of_one_token_has_no_perplexity():
    draw = np.random.default_rng(1)
    scores = log_softmax(draw.standard_normal((5, 1000)).astype(np.float32) * 20)
    same = Positions.of([1, 2, 3, 4, 5], scores, scores.copy()).summary()
    assert (same.kl_mean, same.kl_p99, same.kl_max, same.same_best) == (0, 0, 0, 1)
    assert same.perplexity == same.against_perplexity
    assert same.verdict == VERDICTS[0][1]
    alone = Positions.of([1], scores[:1], scores[1:2]).summary()
    assert alone.kl_mean > 0
    assert alone.perplexity is None


def test_verdicts_get_worse_with_the_mean_and_with_a_heavy_tail():
    figures = Divergence(10, 0, 0, 0, 1, 2.0, 2.0)
    order = [text for _, text in VERDICTS]
    found = [replace(figures, kl_mean=mean).verdict for mean in (0, 1e-9, 0.004, 0.01, 0.05, 0.1, 3)]
    assert found == [order[i] for i in (0, 1, 1, 2, 3, 4, 5)]
    assert replace(figures, kl_mean=0.003, kl_p99=0.05).verdict == order[2]
    assert replace(figures, kl_mean=0.1, kl_p99=9).verdict == order[4]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_the_text_and_end_where_words_do(seed):
    print(f"{seed=}")
    draw = np.random.default_rng(seed)
    words = ["x" * int(n) for n in draw.integers(1, 3000, 200)]
    text = "".join(word + str(draw.choice(["\n", " ", " "])) for word in words) + "y" * (2 * PIECE + 7)
    found = pieces(text)
    assert "".join(found) == text
    assert all(len(piece) <= PIECE for piece in found)
    assert all(piece[-1] in "\n y" for piece in found)
    assert pieces(" \n" * PIECE) == ()


def test_texts_that_cannot_be_read_are_refused(tmp_path: Path):
    def refused(name: str, data: bytes | None, words: str) -> None:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(TextError, match=words):
            read_text(tmp_path / name)

    refused("none", None, "none cannot be read: No such file")
    refused("empty", b" \n\t", "empty holds no text")
    refused("bytes", b"ab\xff", "bytes is not UTF-8: wrong byte 0xff in line 1")
    refused("large", b"x" * (MOST_BYTES + 1), "large is larger than 16 MiB")
    with pytest.raises(TextError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    (tmp_path / "marked").write_bytes("\ufeffà".encode())
    assert read_text(tmp_path / "marked").pieces == ("à",)
    assert [text.name for text in bundled()] == ["prose", "code", "chat"]


class Stub:
    """An engine that makes a token of each character and finds the same distribution everywhere."""

    def __init__(
        self, name: str, vocabulary: int = 300, context: int = 8192, begin: int | None = None
    ) -> None:
        self.info = SimpleNamespace(
            name=name, vocabulary=vocabulary, context_length=context, has_chat_template=False
        )
        self._begin = [] if begin is None else [begin]
        self.scored: list[int] = []

    async def tokenize(self, text: str) -> list[int]:
        return self._begin + [ord(c) % self.info.vocabulary for c in text]

    async def score(self, ids: list[int]) -> np.ndarray:
        self.scored.append(len(ids))
        return np.full((len(ids), self.info.vocabulary), -np.log(self.info.vocabulary), np.float32)


async def test_windows_are_bounded_by_context_and_by_the_size_of_the_tables(tmp_path: Path):
    (tmp_path / "t").write_text("abc " * 300)
    text = [read_text(tmp_path / "t")]
    one, two = Stub("a"), Stub("b", context=101)
    assert [len(window.ids) for window in await windows(text, one, two)] == [100] * 12
    assert len((await windows(text, one, one))[0].ids) == WINDOW
    found = await windows(text, Stub("a", 1 << 18), Stub("b", 1 << 18))
    assert max(len(window.ids) for window in found) * (1 << 18) * 4 <= TABLE_BYTES
    found = await windows(text, one, Stub("b", begin=1))  # a beginning of its own
    told: list[int] = []
    parts = await measure(found, one, two, told.append)
    assert parts["t"].summary().tokens == 1200 == sum(one.scored)
    assert told == [0, 1, 2, 3, 4]


async def test_a_model_without_a_template_reads_a_chat_as_plain_text():
    chat = bundled()[-1]
    (messages,) = chat.pieces
    found = await windows([chat], Stub("a"), Stub("b"))
    said = "\n\n".join(message.content for message in messages)
    assert [id for window in found for id in window.ids] == [ord(c) % 300 for c in said]


async def test_models_of_other_vocabularies_and_texts_of_one_token_are_refused(tmp_path: Path):
    (tmp_path / "t").write_text("some text")
    text = [read_text(tmp_path / "t")]
    for other in (Stub("b", 301), Stub("b", 100)):
        with pytest.raises(TextError, match="a and b have different vocabularies"):
            await windows(text, Stub("a"), other)
    (tmp_path / "t").write_text("x")
    with pytest.raises(TextError, match="fewer than two tokens"):
        await windows([read_text(tmp_path / "t")], Stub("a"), Stub("b"))


@pytest.mark.slow
async def test_native_is_as_close_to_float_as_promised(default_model: Path) -> None:
    """Against the reference backend, whose float32 arithmetic is another program's."""
    if not available():
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        (pytest.fail if compiler else pytest.skip)(unavailable_reason())
    config = EngineConfig(
        model=default_model, backend="native", kv_blocks=9, max_sequences=1, prefix_cache=False
    )
    # One thread: torch's teams wait for each other by spinning, which a busy machine makes ten times as slow.
    exact = replace(config, backend="reference", dtype="float32", kv_dtype="float32", threads=1)
    floats = replace(config, quantization="none", kv_dtype="float32", dtype="float32")
    async with AsyncEngine(exact) as reference, AsyncEngine(config) as native, AsyncEngine(floats) as plain:
        found = await windows(bundled(), native, reference)
        first = {window.text: window for window in reversed(found)}
        found = [window._replace(ids=window.ids[:160]) for window in reversed(first.values())]
        assert [window.text for window in found] == ["prose", "code", "chat"]
        whole = joined(list((await measure(found, native, reference)).values())).summary()
        same = joined(list((await measure(found[:1], plain, reference)).values())).summary()
    print(whole, same)
    assert whole.tokens == 480
    assert 0 < whole.kl_mean < MEAN_TARGET
    assert whole.kl_p99 < P99_TARGET
    assert whole.same_best > 0.93
    # Both read the text, and equally well: a model that is wrong in the same way on both sides does not pass.
    assert whole.against_perplexity is not None
    assert whole.perplexity is not None
    assert 2 < whole.against_perplexity < 60
    assert abs(whole.perplexity / whole.against_perplexity - 1) < 0.03
    assert same.kl_max < 1e-6, "unquantized, native computes with the floats themselves"

import json
import random
from pathlib import Path

import pytest

from engine.tokenization import StopMatcher, StreamDecoder, Tokenizer, load_tokenizer

SEED = 5
PARIS = [504, 3575, 282, 4649, 314, 7042, 30]
LONE_BYTE = 121  # 0xAB


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return load_tokenizer(default_model)


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    decoder = StreamDecoder(tokenizer)
    return [*(decoder.push([token]) for token in ids), decoder.finish()]


def test_B001_characters_of_several_tokens(tokenizer: Tokenizer):
    pieces = stream(tokenizer, [10813, 121, 250] * 8)
    assert "".join(pieces) == "🫠" * 8
    assert not any("\ufffd" in piece for piece in pieces)


def test_B001_stream_cut_inside_a_character(tokenizer: Tokenizer):
    ids = [10813, 121, 250, 10813]
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == "🫠\ufffd"
    assert json.loads(json.dumps(pieces, ensure_ascii=False).encode()) == pieces


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦 family", "日本語のテキスト", "Привет, мир", "🇫🇷🏴󠁧󠁢󠁥󠁮󠁧󠁿", "e\u0301"])
def test_B001_no_replacement_character_in_mid_stream(tokenizer: Tokenizer, text: str):
    pieces = stream(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_B003_spaces_stay(tokenizer: Tokenizer):
    assert "".join(stream(tokenizer, PARIS)) == tokenizer.decode(PARIS) == "The capital of France is Paris."
    assert stream(tokenizer, [7042]) == [" Paris", ""]


def test_B005_invalid_bytes_come_out_at_once(tokenizer: Tokenizer):
    pieces = stream(tokenizer, [LONE_BYTE] * 4000)
    assert pieces == ["\ufffd"] * 4000 + [""]


def test_B005_never_more_than_three_tokens_behind(tokenizer: Tokenizer):
    rng = random.Random(SEED)
    ids = [rng.randrange(17, 290) for _ in range(400)]
    decoder, shown = StreamDecoder(tokenizer), ""
    for count, token in enumerate(ids, 1):
        shown += decoder.push([token])
        earlier = [tokenizer.decode(ids[: max(0, count - lag)]) for lag in range(4)]
        assert shown in earlier, (SEED, count)


def test_B009_stop_inside_a_token(tokenizer: Tokenizer):
    decoder, matcher = StreamDecoder(tokenizer), StopMatcher(["Pari"])
    text, used = "", []
    for token in PARIS:
        used.append(token)
        shown, matched = matcher.push(decoder.push([token]))
        text += shown
        if matched:
            break
    assert text == "The capital of France is "
    assert used[-1] == 7042


def test_pieces_joined_are_the_decoded_list(tokenizer: Tokenizer):
    rng = random.Random(SEED)
    for case in range(300):
        ids = [rng.randrange(-3, tokenizer.vocab_size + 100) for _ in range(rng.randint(0, 60))]
        if case % 2:  # mostly single bytes: broken characters in every order
            ids = [rng.randrange(17, 290) for _ in ids]
        whole = tokenizer.decode(ids)
        assert "".join(stream(tokenizer, ids)) == whole, (SEED, case)
        cuts = sorted(rng.choices(range(len(ids) + 1), k=3))
        decoder = StreamDecoder(tokenizer)
        parts = [decoder.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
        assert "".join(parts) + decoder.finish() == whole, (SEED, case)


def test_control_tokens_and_unknown_ids_have_no_text(tokenizer: Tokenizer):
    assert stream(tokenizer, [1, 2, 0, tokenizer.vocab_size, 10**9, -1]) == [""] * 7
    assert stream(tokenizer, [10813, 2, 121, 250]) == ["", "", "", "🫠", ""]

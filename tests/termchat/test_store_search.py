from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from termchat.store import Store, search
from termchat.words import holds

TEXTS = [
    "The quick brown fox jumps over the lazy dog",
    "今日は世界の天気について話しましょう",
    "你好，世界！机器学习很有趣",
    "안녕하세요 세계 여러분",
    'say "hello" -- it\'s 100% *free* (really) AND NOT a trap; NEAR(this, that) col:umn ^x',
    "Ärger mit ÜBERMUT und Ян сказал да",
    "a_b a%b a!b axb",
    "emoji 🫠 melts",
    "short: hi ok",
    "newline\nin the\tmiddle of a longer text " + "padding " * 50 + "needle " + "padding " * 50,
    "un cafe\u0301 ole\u0301",  # accents behind their letters
    "un café là-bas",
    "한국어, \u1112\u1161\u11ab\u1100\u116e\u11a8",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "t.db") as opened:
        for number, text in enumerate(TEXTS):
            opened.get_or_create(f"c{number}")
            opened.add_message(f"c{number}", "user", text)
        yield opened


def found(store: Store, query: str) -> list[int]:
    return sorted(TEXTS.index(store.message(hit.message_id).text) for hit in search(store, query))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("quick", [0]),
        ("QUICK fox", [0]),
        ("uick", [0]),  # any part of a word
        ("fox cat", []),
        ("世界", [1, 2]),  # two characters: shorter than a trigram
        ("世", [1, 2]),
        ("机器学习", [2]),
        ("について", [1]),
        ("세계", [3]),
        ("하세요", [3]),
        ("世界 天気", [1]),
        ("世界 について", [1]),
        ('"hello"', [4]),
        ("100%", [4]),
        ("*free*", [4]),
        ("--", [4]),
        ("-- it", [4]),
        ("AND NOT", [4]),
        ("NEAR(this,", [4]),
        ("col:umn", [4]),
        ("^x", [4]),
        ("(really)", [4]),
        ('"', [4]),
        ('""', []),
        ("'", [4]),
        ("übermut", [5]),
        ("ä", [5]),
        ("ян", [5]),
        ("ДА", [5]),
        ("a_b", [6]),
        ("_", [6]),
        ("%", [4, 6]),
        ("!b", [6]),
        ("a!", [6]),
        ("🫠", [7]),
        ("hi ok", [8]),
        ("caf\u00e9", [10, 11]),
        ("CAFE\u0301", [10, 11]),
        ("l\u00e9", [10]),
        ("a\u0300", [11]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165", [12]),
        ("\ud55c\uad6d", [12]),
        ("nothing like it", []),
        ("", []),
        ("  \n ", []),
        ("\0", []),
        ("\ud800", []),
    ],
)
def test_every_word_must_occur_and_nothing_is_an_operator(
    store: Store, query: str, expected: list[int]
) -> None:
    assert found(store, query) == expected


def test_no_query_fails(store: Store) -> None:
    seed = 20240601
    chance = random.Random(seed)
    alphabet = string.punctuation + string.whitespace + "aAnOR世界\0\ud800é🫠"
    for _ in range(500):
        query = "".join(chance.choices(alphabet, k=chance.randint(1, 12)))
        for hit in search(store, query):
            text = store.message(hit.message_id).text
            assert holds(text, query.replace("\0", " ")), (seed, query)


def test_a_hit_shows_where_it_is(store: Store) -> None:
    (hit,) = search(store, "needle")
    assert hit.conversation_id == "c9"
    assert hit.title == "newline"
    assert hit.role == "user"
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert [hit.snippet[a:b] for a, b in hit.matches] == ["needle"]
    (hit,) = search(store, "the middle")
    assert hit.snippet.startswith("newline in the middle of")
    assert [hit.snippet[a:b] for a, b in hit.matches] == ["the", "middle"]


def test_the_newest_first_and_no_more_than_asked_for(store: Store) -> None:
    ids = [hit.message_id for hit in search(store, "a", limit=3)]
    assert len(ids) == 3
    assert ids == sorted(ids, reverse=True)


def test_deleted_conversations_are_not_found(store: Store) -> None:
    store.delete("c0")
    assert found(store, "quick") == []
    store.undelete("c0")
    assert found(store, "quick") == [0]


def test_a_reply_is_found_once_it_is_finished_and_as_it_is_then(store: Store) -> None:
    store.get_or_create("c")
    reply = store.begin_reply("c", flush_every=0)
    reply.append("zebra")
    assert search(store, "zebra") == []
    reply.append(" crossing")
    done = reply.finish("interrupted")
    assert done is not None
    assert [hit.message_id for hit in search(store, "zebra crossing")] == [done.id]
    again = store.resume_reply(done.id)
    again.append(" the street")
    again.finish()
    assert [hit.message_id for hit in search(store, "crossing the")] == [done.id]
    with store.database.write() as db:
        db.execute("INSERT INTO message_fts(message_fts, rank) VALUES ('integrity-check', 0)")


def test_text_from_before_a_nul_is_found(store: Store) -> None:
    store.get_or_create("c")
    store.add_message("c", "user", "walrus\0penguin")
    assert len(search(store, "walrus")) == 1
    with store.database.write() as db:
        db.execute("INSERT INTO message_fts(message_fts, rank) VALUES ('integrity-check', 0)")

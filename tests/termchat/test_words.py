"""Words as people look for them."""

from __future__ import annotations

import pytest

from termchat.words import holds


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("un caf\u00e9", "cafe\u0301", True),
        ("un cafe\u0301", "CAF\u00c9 un", True),
        ("Straße", "STRASSE", True),
        ("ＡＢＣ １２３", "abc 123", True),
        ("Привет", "ПРИВЕТ", True),
        ("\u03a3\u03a5\u039c\u0392\u0391\u03a3\u0397\u03a3", "σύμβαση", False),
        ("σας", "ΣΑΣ", True),
        ("one two", "two three", False),
        ("anything", "", True),
    ],
)
def test_a_text_holds_all_words_however_they_are_spelled(text: str, query: str, found: bool) -> None:
    assert holds(text, query) == found

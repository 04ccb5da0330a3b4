"""Settings as they are typed, both ways."""

from hypothesis import example, given
from hypothesis import strategies as st

from termchat.tui.screens.conversation_settings import parse, written

TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=4))
@example(["\n\n"])
@example(["Übersetzung:\n", "|", "\\", "\\n", " a ", "\u3000", "\\|", "a\\"])
@example(["\x85", "\x1c", "\ufeff", " ", "  ", "\\u0041", "\x00"])
def test_texts_that_end_a_reply_come_back_as_they_were(texts: list[str]) -> None:
    typed = written("stop", texts)
    assert "\n" not in typed
    assert parse("stop", f" {typed}  ") == tuple(texts)
    assert written("stop", parse("stop", typed)) == typed


def test_what_people_type() -> None:
    assert parse("stop", r"Übersetzung:\n") == ("Übersetzung:\n",)
    assert parse("stop", r"\n\n|\tEND|a\|b|C:\\x|日本") == ("\n\n", "\tEND", "a|b", "C:\\x", "日本")
    assert parse("stop", "a | b") == ("a ", " b")
    assert parse("stop", "ends with \\") == ("ends with \\",)
    assert parse("stop", r"\q") == ("q",)
    assert written("stop", "one") == "one"
    assert written("stop", 3) == "3"

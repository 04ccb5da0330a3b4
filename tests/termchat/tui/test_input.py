"""What a terminal sends, from bytes to keys, pastes and nothing: without a terminal or a screen."""

import os
import random
import select
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from textual import events

from termchat.tui.terminal.driver import TerminalDriver
from termchat.tui.terminal.input import REST_SECONDS, Input, Token
from termchat.tui.terminal.paste import PASTE_SECONDS, lines
from termchat.tui.terminal.reports import Reports

BEGIN, END = b"\x1b[200~", b"\x1b[201~"
LATER = 60.0
N001 = b"one\x1b[31mred\rtwo\rthree four five six seven eight nine\rten"
N001_TEXT = "one␛[31mred\ntwo\nthree four five six seven eight nine\nten"


def each(*reads: bytes, gap: float = 1e-4, marks: bool = False, end: float = LATER) -> Iterator[list[Token]]:
    """The tokens of each of the reads that come one after another; then nothing more."""
    given = Input()
    given.marks_pastes = marks
    now = 0.0
    for read in reads:
        yield given.tick(now)
        yield given.feed(read, now)
        now += gap
    while (deadline := given.deadline) is not None and deadline <= now + end:
        yield given.tick(deadline)


def came(*reads: bytes, gap: float = 1e-4, marks: bool = False, end: float = LATER) -> list[Token]:
    """The tokens of all of these."""
    return [token for tokens in each(*reads, gap=gap, marks=marks, end=end) for token in tokens]


def pasted(tokens: Iterable[Token]) -> str:
    """All of them, which have to be pastes."""
    tokens = list(tokens)
    assert all(token.kind == "paste" for token in tokens), tokens
    return "".join(token.text for token in tokens)


def seen(*reads: bytes, gap: float = 1e-4, marks: bool = False) -> list[str]:
    """What the application is told: names of keys, and other events by their classes."""
    reports = Reports()
    messages = [event for tokens in each(*reads, gap=gap, marks=marks) for event in reports.messages(tokens)]
    return [event.key if isinstance(event, events.Key) else type(event).__name__ for event in messages]


def typed(*reads: bytes, gap: float = 1e-4) -> str:
    """The text that is typed or pasted by it."""
    text = ""
    for event in Reports().messages(came(*reads, gap=gap)):
        if isinstance(event, events.Paste):
            text += event.text
        elif isinstance(event, events.Key) and event.character and "+" not in event.key:
            text += event.character if event.is_printable else ""
    return text


# Pastes


@pytest.mark.parametrize("gap", [1e-4, 0.05, 0.2, REST_SECONDS + 0.1, PASTE_SECONDS + 0.1])
def test_N001_a_paste_is_a_paste_wherever_its_reads_are_cut(gap: float) -> None:
    whole = BEGIN + N001 + END
    for at in range(1, len(whole)):
        tokens = [token for token in came(whole[:at], whole[at:], gap=gap) if token.text != "\x1b"]
        assert pasted(tokens) == N001_TEXT, at


def test_N001_byte_by_byte() -> None:
    whole = BEGIN + N001 + END
    assert pasted(came(*(whole[at : at + 1] for at in range(len(whole))))) == N001_TEXT


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a\x1b[201\rb", "a␛[201\nb"),
        (b"a\x1b[20", "a␛[20"),
        (b"a\x1b", "a␛"),
        (b"a\x1b[200~b\rc", "a␛[200~b\nc"),
        (b"a\r\nb\nc\rd\r\n", "a\nb\nc\nd\n"),
        (b"\x00\x07\x08\x7f\x11\x03\t", "␇␈␡␑␃\t"),
        ("\u0085\u009b31m".encode(), "\ufffd\ufffd31m"),
        (b"caf\xe9 \xc3\x28 \xed\xa0\x80", "caf\ufffd \ufffd( \ufffd\ufffd\ufffd"),
        ("می\u200cخواهم \U0001f468\u200d\U0001f469 א\u2067ב\u2069".encode(),) * 2,
    ],
    ids=[
        "half an end mark",
        "its beginning",
        "escape",
        "begin",
        "line ends",
        "controls",
        "C1",
        "bad",
        "joiners",
    ],
)
def test_N001_what_a_paste_holds(content: bytes, text: Any) -> None:
    text = text.decode() if isinstance(text, bytes) else text
    assert pasted(came(BEGIN + content + END)) == text
    assert pasted(came(BEGIN + content, END)) == text


def test_N001_an_end_mark_inside_a_paste_does_not_end_it() -> None:
    whole = BEGIN + b"a" + END + b"rm\r" + END
    assert came(whole + b" ok") == [Token("paste", "a␛[201~rm\n"), Token("keys", " ok")]
    for at in range(1, len(whole)):
        assert pasted(came(whole[:at], whole[at:])) == "a␛[201~rm\n", at


def test_N001_two_pastes_and_keys_between() -> None:
    tokens = came(BEGIN + b"one\r" + END + b"x" + BEGIN + b"two" + END + b"y\r")
    assert tokens == [
        Token("paste", "one\n"),
        Token("keys", "x"),
        Token("paste", "two"),
        Token("keys", "y\r"),
    ]
    assert len(came((BEGIN + b"a" + END) * 5000)) == 5000


def test_N001_a_paste_without_an_end_is_not_lost_and_sends_nothing() -> None:
    tokens = came(BEGIN + b"a\rb", b"c\rd\r", b"\x1b[A\rf", gap=PASTE_SECONDS + 0.1)
    assert pasted(tokens) == "a\nbc\nd\n␛[A\nf"
    assert came(BEGIN + b"a\r", b"\r", b"o", b"k", b"\x11", gap=PASTE_SECONDS + 0.1) == [
        Token("paste", "a\n"),
        *(Token("keys", key) for key in ("\r", "o", "k", "\x11")),
    ]
    late = came(BEGIN + b"a\r", b"x", b"b\rc" + END + b"y", gap=PASTE_SECONDS + 0.1)
    assert late == [Token("paste", "a\n"), Token("keys", "x"), Token("paste", "b\nc"), Token("keys", "y")]


def test_N001_several_megabytes() -> None:
    text = "a line of text, \x1b[31m日本語\r" * 150_000
    data = BEGIN + text.encode() + END
    reads = [data[at : at + 4095] for at in range(0, len(data), 4095)]
    assert pasted(came(*reads)) == lines(text)


def test_N001_lines_of_a_terminal_that_does_not_mark_pastes() -> None:
    assert came(b"one\rtwo\rthree\r") == [Token("paste", "one\ntwo\nthree\n")]
    assert came(b"one\r") == [Token("keys", "one\r")]
    assert came(b"one\r\x0etwo\r") == [Token("keys", "one\r\x0etwo\r")]
    assert came(b"one\rtwo\r", marks=True) == [Token("keys", "one\rtwo\r")]
    assert came(b"\x1b[?2004;2$y", b"a\rb\r")[1:] == [Token("keys", "a\rb\r")]


# Bytes that are no text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xe9", "caf"),
        (b"\x80\xbf\x9b31m", "\ufffd\ufffd\ufffd31m"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
        (b"\x1b[M \x800", ""),
        (b"\x1b[M\xff\xff\xff", ""),
        (b"\x1b[M !!", ""),
        (b"\x1b\xe9", "\ufffd"),
        ("\x9b5A".encode(), "5A"),
    ],
)
def test_N003_bytes_that_are_not_utf8(data: bytes, text: str) -> None:
    """Then `ok` is typed."""
    assert typed(data, b"ok").replace("\ufffd", "") == f"{text}ok".replace("\ufffd", "")
    for at in range(1, len(data)):
        assert typed(data[:at], data[at:], b"ok").endswith("ok")


def test_a_character_in_two_reads() -> None:
    data = "日é😀".encode()
    for at in range(1, len(data)):
        assert typed(data[:at], data[at:], gap=5) == "日é😀"


# Answers of the terminal

ANSWERS = [
    b"\x1b[12;40R",
    b"\x1b[?62;22c",
    b"\x1b[>41;354;0c",
    b"\x1bP!|7E565445\x1b\\",
    b"\x1bP>|tmux 3.3a\x1b\\",
    b"\x1b[?2026;2$y",
    b"\x1b[?2004;2$y",
    b"\x1b[4;1$y",
    b"\x1b]11;rgb:1e1e/1e1e/2e2e\x07",
    b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]4;1;rgb:cdcd/0000/0000\x1b\\",
    b"\x1b[?29u",
    b"\x1b[I",
    b"\x1b[O",
    b"\x1b[48;36;120;720;1200t",
    b"\x1b[8;36;120t",
    b"\x1b[?997;1n",
    b"\x1b[0n",
    b"\x1b_Gi=31;OK\x1b\\",
    b"\x1b[<35;10;5M",
    b"\x1b[<0;10;5m",
    b"\x1bP1$r0m\x1b\\",
]


@pytest.mark.parametrize("answer", ANSWERS, ids=ascii)
def test_answers_are_never_typed(answer: bytes) -> None:
    assert typed(b"a", answer, b"b") == "ab"
    assert typed(b"a" + answer + b"b") == "ab"
    for at in range(1, len(answer)):
        for gap in (0.01, REST_SECONDS - 0.1, LATER):
            text = typed(answer[:at], answer[at:], b"ok", gap=gap)
            if gap < LATER or at > 1:
                assert text.endswith("ok"), (at, gap, text)
            if gap < REST_SECONDS and at > 1:
                assert text == "ok", (at, gap, text)


@pytest.mark.parametrize("answer", ANSWERS, ids=ascii)
@pytest.mark.parametrize("gap", [0.2, 0.7, 1.5])
def test_answers_that_come_late_in_two_parts_are_never_typed(answer: bytes, gap: float) -> None:
    for at in range(1, len(answer)):
        rest = answer[at:]
        if len(rest) > 1 or at > 2:
            assert typed(answer[:at], rest, gap=gap) == "", at


def test_text_after_an_unfinished_sequence_is_typed() -> None:
    for begun in (
        b"\x1b[",
        b"\x1b[?6",
        b"\x1b]11;rgb",
        b"\x1bP>|x",
        b"\x1b[M",
        b"\x1bO",
        b"\x1b[20",
        b"\x1b]",
    ):
        assert typed(begun, b"hello", gap=3) == "hello", begun
    assert typed(b"\x1b[?6", b"ok") == "ok"
    assert typed(b"\x1b]11;rgb:", b"ok") == "ok"
    assert typed(b"\x1b[1;2xok") == "ok"


# Keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1b\x1b[A", ["alt+up"]),  # Option in macOS' terminal
        (b"\x1b\x1bOD", ["alt+left"]),
        (b"\x1b\x1b[3~", ["alt+delete"]),
        (b"\x1b\x1b[1;5A", ["alt+ctrl+up"]),
        (b"\x1b\x1b\x1b[5~", ["escape", "alt+pageup"]),
        (b"\x1b\x1b[I", ["escape", "AppFocus"]),
        (b"\x1b\x1b[?2026;2$y", ["escape", "TerminalSupportsSynchronizedOutput"]),
        (b"\x1b\x1b[<0;1;1M", ["escape", "MouseDown"]),
        (b"\x1b[A", ["up"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b[1;5A", ["ctrl+up"]),
        (b"\x1b[Z", ["shift+tab"]),
        (b"\x1b[[A", ["f1"]),
        (b"\x1bOP", ["f1"]),
        (b"\x1b[11~", ["f1"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\x1b1", ["alt+1"]),
        (b"\x1b\r", ["alt+enter"]),
        (b"\x1b\x7f", ["ctrl+w"]),
        (b"\x08", ["backspace"]),
        (b"\x1a\x1f", ["ctrl+z", "ctrl+underscore"]),
        (b"ab\x7f\x15", ["a", "b", "backspace", "ctrl+u"]),
    ],
    ids=ascii,
)
def test_keys_of_every_terminal(data: bytes, keys: list[str]) -> None:
    assert seen(data) == keys


def test_escape_and_a_key_that_comes_at_once_are_two_only_if_time_is_between() -> None:
    assert seen(b"\x1b", b"[A", gap=0.01) == ["up"]
    assert seen(b"\x1b", b"x", gap=0.2) == ["escape", "x"]
    assert seen(b"\x1b", b"[A", gap=0.2) == ["escape", "up"], "it is the rest of the key"
    assert seen(b"\x1b", b"[", b"x", gap=0.2) == ["escape", "left_square_bracket", "x"]
    assert typed(b"\x1b", b"[I think]", gap=0.2) == "[I think]"


@pytest.mark.parametrize(
    ("report", "keys"),
    [
        (b"\x1b[1089::99;5u", ["ctrl+c"]),
        (b"\x1b[1090::110;5u", ["ctrl+n"]),
        (b"\x1b[1081::113;5u", ["ctrl+q"]),
        (b"\x1b[1089;5u", ["ctrl+c"]),
        (b"\x1b[968;5u", ["ctrl+c"]),  # Greek
        (b"\x1b[1489;5u", ["ctrl+c"]),  # Hebrew
        (b"\x1b[1057:1057:99;6u", ["ctrl+shift+c"]),
        (b"\x1b[1089::99;69u", ["ctrl+c"]),  # with caps lock
        (b"\x1b[1089::99;133u", ["ctrl+c"]),  # with num lock
        (b"\x1b[1089::99;5:1u", ["ctrl+c"]),
        (b"\x1b[1089::99;5:2u", ["ctrl+c"]),
        (b"\x1b[1089::99;5:3u", []),
        (b"\x1b[1089::99;3u", ["alt+c"]),
        (b"\x1b[99;5u", ["ctrl+c"]),
        (b"\x1b[99::106;5u", ["ctrl+c"]),  # Dvorak: what it says is meant, not its place
        (b"\x1b[27;5;99~", ["ctrl+c"]),
        (b"\x1b[27;5;67~", ["ctrl+c"]),
        (b"\x1b[27;2;13~", ["shift+enter"]),
        (b"\x1b[27;5;1089~", ["ctrl+c"]),
        (b"\x1b[49;3u", ["alt+1"]),
        (b"\x1b[49;3;49u", ["alt+1"]),
        (b"\x1b[13u", ["enter"]),
        (b"\x1b[13;2u", ["shift+enter"]),
        (b"\x1b[13;1:3u", []),
        (b"\x1b[57414u", ["enter"]),
        (b"\x1b[127;5u", ["ctrl+backspace"]),
        (b"\x1b[127;2u", ["backspace"]),
        (b"\x1b[27;2;127~", ["backspace"]),
        (b"\x1b[27;2u", ["escape"]),
        (b"\x1b[9;2u", ["shift+tab"]),
        (b"\x1b[91;5u", ["escape"]),
        (b"\x1b[104;5u", ["backspace"]),  # as every other terminal says it
        (b"\x1b[105;5u", ["tab"]),
        (b"\x1b[109;5u", ["enter"]),
        (b"\x1b[27;5;109~", ["enter"]),
        (b"\x1b[47;5u", ["ctrl+underscore"]),
        (b"\x1b[106;5u", ["ctrl+j"]),
        (b"\x1b[104:72;6u", ["ctrl+shift+h"]),
        (b"\x1b[45:95;6u", ["ctrl+underscore"]),
        (b"\x1b[57441;2u", []),
        (b"\x1b[57442;5:1u", []),
        (b"\x1b[1;5:2D", ["ctrl+left"]),
        (b"\x1b[1;1:3D", []),
        (b"\x1b[5;1:1~", ["pageup"]),
        (b"\x1b[9999999;5u", []),
        (b"\x1b[55296;5u", []),
        (b"\x1b[57350u", []),
        (b"\x1b[;u", []),
    ],
    ids=ascii,
)
def test_N008_key_reports(report: bytes, keys: list[str]) -> None:
    assert seen(report) == keys


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (b"\x1b[97;;97u", "a"),
        (b"\x1b[97:65;2;65u", "A"),
        (b"\x1b[97:65;2u", "A"),
        (b"\x1b[97;65u", "A"),
        (b"\x1b[97;66u", "a"),
        (b"\x1b[49:33;65u", "1"),
        (b"\x1b[49:33;2u", "!"),
        (b"\x1b[1089:1057:99;2;1057u", "С"),
        (b"\x1b[57400;129;49u", "1"),
        (b"\x1b[57400;129u", "1"),
        (b"\x1b[0;;128104:8205:128105u", "\U0001f468\u200d\U0001f469"),
        (b"\x1b[97;3;229u", "å"),
        (b"\x1b[113;7;64u", "@"),  # AltGr is alt and ctrl on Windows
        (b"\x1b[32;2u", " "),
        (b"\x1b[97;;7:97u", "a"),
    ],
    ids=ascii,
)
def test_N008_key_reports_that_type(report: bytes, text: str) -> None:
    messages = list(Reports().messages(came(report)))
    assert "".join(event.character or "" for event in messages if isinstance(event, events.Key)) == text


def test_mouse_reports_of_all_forms_are_one() -> None:
    def mouse(data: bytes) -> list[tuple[str, int, int, int]]:
        found = Reports().messages(came(data))
        return [(type(event).__name__, event.x, event.y, event.button) for event in found]  # type: ignore[attr-defined]

    today = mouse(b"\x1b[<0;100;5M\x1b[<0;100;5m")
    assert today == [("MouseDown", 99, 4, 1), ("MouseUp", 99, 4, 1)]
    assert mouse(b"\x1b[M \x84%\x1b[M#\x84%") == today
    assert mouse(b"\x1b[32;100;5M\x1b[35;100;5M") == today


def test_only_clicks_of_the_left_button_are_clicks() -> None:
    """The others are the terminal's, to paste or for a menu, and those at the side are for a browser."""
    for button in (1, 2, 1 + 16, 2 + 8, 128, 129):
        assert seen(f"\x1b[<{button};5;5M\x1b[<{button};5;5m".encode()) == [], button
    assert seen(b"\x1b[M! %\x1b[M# %") == []
    assert seen(b"\x1b[<16;5;5M\x1b[<64;5;5M\x1b[<35;6;5M\x1b[<34;7;5M") == [
        "MouseDown",
        "MouseScrollUp",
        "MouseMove",
        "MouseMove",
    ]


def test_of_many_reports_of_the_focus_the_last_one_counts() -> None:
    assert seen(b"a\x1b[I\x1b[Ob\x1b[I") == ["a", "b", "AppFocus"]
    assert seen(b"\x1b[I\x1b[O" * 1000) == ["AppBlur"]


@pytest.mark.parametrize("report", ["\x1b[<35;-3;5M", "\x1b[<32;7;-12M", "\x1b[<0;-1;-1m"])
def test_mouse_reports_from_outside_of_the_window_type_nothing(report: str) -> None:
    """kitty counts pixels, and below nought where a drag leaves the window to the left or the top."""
    data = report.encode()
    assert [kind for kind in seen(data) if not kind.startswith("Mouse")] == []
    for cut in range(3, len(data)):
        typed, reports = Input(), Reports()
        tokens = typed.feed(data[:cut], 0.0) + typed.feed(data[cut:], 0.01) + typed.tick(9.0)
        assert all(isinstance(event, events.MouseEvent) for event in reports.messages(tokens)), cut


def test_a_size_is_believed_only_where_it_can_be() -> None:
    sizes = b"\x1b[48;36;120;0;0t\x1b[48;9999;9999;1;1t\x1b[48;0;0;0;0t"
    assert seen(sizes) == []
    assert seen(b"\x1b[?2048;1$y" + sizes) == ["InBandWindowResize", "Resize"]


def test_random_bytes_in_random_pieces() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    pieces = [*ANSWERS, BEGIN, END, b"\x1b", b"\x1b[", b"\xff", b"\xe9", b"a", b"\x1b]", b"\x1bP", b"\x1b[M"]
    for _ in range(2000):
        data = b"".join(
            rng.choice(pieces) if rng.random() < 0.7 else rng.randbytes(rng.randrange(8)) for _ in range(12)
        )
        cuts = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.randrange(6))))
        reads = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        gap = rng.choice([1e-4, 0.05, 0.3, 0.8, 1.5])
        list(Reports().messages(came(*reads, gap=gap)))
        assert typed(*reads, b"", b"", b"ok", gap=max(gap, 1.2)).endswith("ok"), (data, cuts, gap)


def test_of_a_large_paste_that_is_not_marked_the_rest_is_waited_for() -> None:
    reading, writing = os.pipe()
    more = select.poll()
    more.register(reading, select.POLLIN)
    pieces = iter([*[b"a line\r"] * 5, b"the last"])

    class Terminal:
        """Sends the next piece when it is waited for."""

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            if milliseconds and (piece := next(pieces, b"")):
                os.write(writing, piece)
            return more.poll(0)

    driver = TerminalDriver.__new__(TerminalDriver)
    driver.fileno, driver.exit_event, driver._more = reading, threading.Event(), Terminal()  # type: ignore[assignment]
    first = b"a line of many\r" * 100
    os.write(writing, first)
    assert driver._read() == first + b"a line\r" * 5 + b"the last"
    os.write(writing, b"typed\r")
    assert driver._read() == b"typed\r"
    os.close(reading)
    os.close(writing)

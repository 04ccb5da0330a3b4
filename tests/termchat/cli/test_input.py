"""Standard input and arguments: what is read, how it becomes the prompt, bad bytes."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from termchat.cli import stdin
from termchat.cli.console import Console
from termchat.cli.errors import CliError
from termchat.cli.main import run
from termchat.cli.output import Messages, Output
from termchat.cli.request import Request


@pytest.mark.parametrize(
    ("argument", "data", "text"),
    [
        ("Summarize:", b"the text\n", "Summarize:\n\nthe text"),
        (None, b"the text", "the text"),
        (None, b"the text\n", "the text"),
        (None, b"the text\r\n", "the text"),
        (None, b"the text\n\n", "the text\n"),
        (None, b"  indented\n  text", "  indented\n  text"),
        ("Summarize:", b"", "Summarize:"),
        ("", b"the text", "the text"),
        (None, b"a\r\nb\r\n", "a\r\nb"),
        (None, b"\xef\xbb\xbfthe text", "the text"),
        ("x", b"\xef\xbb\xbfthe text", "x\n\nthe text"),
        ("-", b"the text\n", "the text"),
        (None, b"nul \x00 byte", "nul \x00 byte"),
        (None, "é 🫠 漢".encode(), "é 🫠 漢"),
    ],
)
def test_B077_the_prompt_is_the_argument_a_blank_line_and_the_data(termchat, requests, argument, data, text):
    outcome = termchat(*([argument] if argument is not None else []), stdin=data)
    assert outcome.code == 0, outcome.err
    assert [request.text for request in requests] == [text]
    assert outcome.err == ""


def test_raw_text_is_not_touched(termchat, requests):
    assert termchat("--raw", stdin=b"the text\n").code == 0
    assert requests[0].text == "the text\n"


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        ([""], None),
        (["  \n "], None),
        ([], None),
        ([], b""),
        ([], b"\n"),
        ([" "], b" \r\n"),
        (["-"], b"\n"),
        (["-"], None),
        ([], b"\xef\xbb\xbf"),
    ],
)
def test_B027_nothing_to_answer_is_a_usage_error(termchat, requests, arguments, data):
    outcome = termchat(*arguments, stdin=data)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("termchat: there is no prompt; give one as an argument")
    assert outcome.err.count("\n") == 1
    assert requests == []


def test_B077_bad_bytes_on_standard_input_are_replaced_and_named(termchat, requests):
    outcome = termchat(stdin=b"caf\xe9 au lait")
    assert outcome.code == 0
    assert requests[0].text == "caf\ufffd au lait"
    assert outcome.err == (
        "termchat: standard input is not valid UTF-8 at byte offset 3; such bytes are replaced by U+FFFD\n"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a picture (PNG)"),
        (b"%PDF-1.7\n1 0 obj\n", "a PDF document; make a text of it first (pdftotext does)"),
        (b"PK\x03\x04" + bytes(26) + b"word/document.xml", "an Office document; save it as text first"),
        (b"\x1f\x8b\x08" + bytes(20), "a gzip archive; unpack it first"),
        (b"SQLite format 3\0" + bytes(100), "a SQLite database"),
    ],
)
def test_what_is_no_text_at_all_is_refused_by_its_kind(termchat, requests, data, said):
    outcome = termchat("Sum up", stdin=data)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"termchat: standard input is no text but {said}\n"
    assert requests == []


def test_a_text_that_begins_like_a_picture_is_a_text(termchat, requests):
    assert termchat("Sum up", stdin=b"GIF89a begins such files, PK others").code == 0


def test_B077_bad_bytes_in_arguments_are_replaced_and_named(termchat, requests):
    bad = os.fsdecode(b"caf\xe9 au lait")
    outcome = termchat("--stop", bad, "-s", bad, bad)
    assert outcome.code == 0
    assert requests == [
        Request("caf\ufffd au lait", system="caf\ufffd au lait", sampling={"stop": ("caf\ufffd au lait",)})
    ]
    for name in ("PROMPT", "--system", "--stop"):
        assert f"{name} is not valid UTF-8 at byte offset 3;" in outcome.err


def test_bad_bytes_in_a_model_path_stay(termchat, requests):
    assert termchat("-m", os.fsdecode(b"/caf\xe9.gguf"), "Hi").code == 0
    assert os.fsencode(requests[0].model or "") == b"/caf\xe9.gguf"


@pytest.mark.parametrize("argument", ["Hi", None])
def test_a_device_is_read_only_without_a_prompt(termchat, requests, argument):
    outcome = termchat(*([argument] if argument else []), stdin=None)
    assert outcome.code == (0 if argument else 2)


def with_stdin(source, arguments):
    read, write = os.pipe()
    errors_read, errors_write = os.pipe()
    code = run(arguments, Console(Output(write), Messages(errors_write), stdin=source))
    os.close(write)
    os.close(errors_write)
    with open(read, "rb"), open(errors_read) as errors:
        return code, errors.read()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_an_idle_pipe_is_mentioned_after_a_second(requests, kind):
    if kind == "pipe":
        source, sink = os.pipe()
    else:
        ours, theirs = socket.socketpair()
        source, sink = ours.detach(), theirs.detach()

    errors_read, errors_write = os.pipe()
    said = []

    def late():
        said.append(os.read(errors_read, 1000))  # waits until something is said
        os.write(sink, b"data\n")
        os.close(sink)

    writer = threading.Thread(target=late)
    writer.start()
    code = run(["Hi"], Console(Output(errors_write), Messages(errors_write), stdin=source))
    writer.join()
    for descriptor in (source, errors_read, errors_write):
        os.close(descriptor)
    assert (code, said) == (0, [b"termchat: reading standard input\n"])
    assert requests[0].text == "Hi\n\ndata"


def test_a_closed_standard_input_is_none(requests):
    read, write = os.pipe()
    console = Console(Output(write), Messages(write), closed=frozenset({0}))
    assert run(["Hi"], console) == 0
    assert requests[0].text == "Hi"
    assert run([], console) == 2
    os.close(read)
    os.close(write)


def test_an_endless_input_is_refused(monkeypatch):
    monkeypatch.setattr(stdin, "LIMIT_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as zeros, pytest.raises(CliError) as caught:
        stdin.read_all(zeros.fileno())
    assert caught.value.code == "prompt_too_long"


def test_a_non_blocking_pipe_is_read_to_its_end():
    source, sink = os.pipe()
    os.set_blocking(source, False)

    def slowly():
        for _ in range(3):
            time.sleep(0.02)
            os.write(sink, b"abc")
        os.close(sink)

    writer = threading.Thread(target=slowly)
    writer.start()
    assert stdin.read_all(source) == b"abcabcabc"
    writer.join()
    os.close(source)

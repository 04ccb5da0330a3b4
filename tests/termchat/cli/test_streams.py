"""Streams that others share: non-blocking input, readers that leave or stall, text in other encodings."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from begun import saved
from engine.testing import ScriptedRunner
from termchat.cli.batch.results import ResultFile
from termchat.cli.console import Console
from termchat.cli.destination import stream_of
from termchat.cli.main import run
from termchat.cli.output import Messages, Output, OutputError, ReaderClosed
from termchat.cli.stdin import Input, decode, read_all
from termchat.store import Store
from waiting import wait_for

SECONDS = 60.0
"""After this something hangs."""


def feed(fd, *pieces):
    """A thread that writes pieces, each when its condition holds, and closes."""

    def write():
        for condition, piece in pieces:
            wait_for(condition)
            time.sleep(0.03)  # so that "nothing yet" is met; nothing depends on it
            os.write(fd, piece)
        os.close(fd)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.fixture
def streams(tmp_path):
    """Run the program with given descriptors; exit code, what came on standard error and on a file."""

    def call(*arguments, stdin=None, stdout=None):
        with open(tmp_path / "out", "w+b") as out, open(tmp_path / "err", "w+b") as err:
            null = os.open(os.devnull, os.O_RDONLY)
            output = Output(out.fileno() if stdout is None else stdout)
            console = Console(output, Messages(err.fileno()), stdin=null if stdin is None else stdin)
            code = run(arguments, console)
            os.close(null)
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()

    return call


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_N004_a_batch_waits_for_a_non_blocking_pipe(streams, scripted, tmp_path):
    scripted("One.", "Two.", "Three.")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    out = tmp_path / "out.jsonl"
    thread = feed(
        writing,
        (lambda: True, b'{"prompt": "a"}\n'),
        (lambda: lines_of(out) == 1, b'{"prompt": '),
        (lambda: True, b'"b"}\n{"prompt": "c"}\n'),
    )
    code, _, err = streams("batch", "-", "-o", str(out), stdin=reading)
    thread.join()
    assert code == 0, err
    assert "3 answered, 0 failed" in err
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(record["index"] for record in records) == [0, 1, 2]
    assert not any("error" in record for record in records)
    assert fcntl.fcntl(reading, fcntl.F_GETFL) & os.O_NONBLOCK, "the flags are the other program's"
    os.close(reading)


def test_N004_a_prompt_in_two_pieces(streams, scripted, home):
    scripted("Yes.")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    thread = feed(writing, (lambda: True, b"the first"), (lambda: True, b" and the second"))
    code, out, err = streams(stdin=reading)
    thread.join()
    os.close(reading)
    assert (code, out) == (0, "Yes.\n"), err
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        assert store.path(store.newest().id)[0].text == "the first and the second"


@pytest.mark.parametrize("make", [os.pipe, "socket"])
def test_N004_nothing_yet_is_never_the_end(make):
    """Byte by byte, with pauses, whatever the kind of description."""
    if make == "socket":
        reading, writing = (end.detach() for end in socket.socketpair())
    else:
        reading, writing = make()
    os.set_blocking(reading, False)
    data = b"a\nbc\n\nlast"
    thread = feed(writing, *((lambda: True, bytes([byte])) for byte in data))
    assert io.BufferedReader(Input(reading)).read() == data
    thread.join()
    os.close(reading)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be", "utf-8"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_N019_a_text_is_read_by_its_byte_order_mark(encoding, size):
    text = '{"prompt": "grün 🙂"}\n{"prompt": "b"}\n'
    mark = "\ufeff" if encoding.endswith("-be") else ""
    data = (mark + text).encode(encoding)
    reading, writing = os.pipe()

    def write():
        for at in range(0, len(data), size):
            os.write(writing, data[at : at + size])
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    assert io.BufferedReader(Input(reading)).read().decode() == text
    thread.join()
    os.close(reading)
    assert decode(data, "x", pytest.fail) == text


def test_N019_no_byte_order_mark_reaches_the_model(termchat, scripted, home):
    scripted("Yes.", "Yes.", "Yes.")
    assert termchat("\ufeffHi", "-s", "\ufeffBe brief", stdin="\ufeffthere\r\n".encode("utf-16")).code == 0
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        conversation = store.newest()
        assert store.path(conversation.id)[0].text == "Hi\n\nthere"
        assert conversation.system == "Be brief"
    data = '\ufeff{"prompt": "a"}\r\n{"prompt": "b"}\r\n'.encode("utf-16-le")
    outcome = termchat("batch", "-", stdin=data)
    assert outcome.code == 0, outcome.err
    assert "2 answered, 0 failed" in outcome.err


def test_bytes_that_end_within_a_character_of_utf_16():
    noted = []
    assert decode(b"\xff\xfea\0b", "the file", noted.append) == "a\ufffd"
    assert noted == ["the file is not valid UTF-16 at byte offset 4; such bytes are replaced by U+FFFD"]


def jobs(tmp_path, count, **more):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"prompt": "Hi", **more}) + "\n" for _ in range(count)))
    return str(source)


def take_one_line(path, found):
    """A reader that takes the first line, and leaves."""
    with open(path, "rb") as file:
        found.append(file.readline())


def test_N005_the_reader_of_a_fifo_leaves(streams, scripted, tmp_path):
    scripted(*["Hello."] * 200)
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=take_one_line, args=(fifo, found))
    reader.start()
    code, out, _ = streams("batch", jobs(tmp_path, 200), "-o", str(fifo))
    reader.join()
    assert (code, out) == (141, "")
    assert json.loads(found[0])["text"] == "Hello."


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_N005_the_reader_of_a_descriptor_leaves(streams, scripted, tmp_path, kind):
    """As with -o /dev/stdout and -o >(head -n 1): the name stands for a descriptor that is open already."""
    scripted(*["Hello."] * 200)
    reading, writing = os.pipe() if kind == "pipe" else (end.detach() for end in socket.socketpair())
    found = []
    reader = threading.Thread(target=take_one_line, args=(reading, found))
    reader.start()
    code, _, _ = streams("batch", jobs(tmp_path, 200), "-o", f"/dev/fd/{writing}")
    reader.join()
    os.close(writing)
    assert code == 141
    assert json.loads(found[0])["text"] == "Hello."


def test_N005_a_reader_that_has_left_before(streams, scripted, tmp_path):
    scripted(*["Hello."] * 50)
    reading, writing = os.pipe()
    os.close(reading)
    code, _, _ = streams("batch", jobs(tmp_path, 50), "-o", f"/dev/fd/{writing}")
    os.close(writing)
    assert code == 141


def test_N005_a_file_by_the_name_of_its_descriptor_is_kept_whole(streams, scripted, tmp_path):
    scripted(*["Hello."] * 40)
    with open(tmp_path / "all.jsonl", "wb") as file:
        code, _, err = streams("batch", jobs(tmp_path, 40), "-o", f"/dev/fd/{file.fileno()}")
    assert code == 0, err
    texts = [json.loads(line)["text"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert texts == ["Hello."] * 40


def test_N005_only_a_regular_file_is_locked_and_looked_into(tmp_path):
    standard = Output(1)
    fifo, file = tmp_path / "fifo", tmp_path / "file"
    os.mkfifo(fifo)
    file.write_text("")
    keep = os.open(fifo, os.O_RDWR)
    new = str(tmp_path / "new")
    for name, is_stream in ((str(fifo), True), ("/dev/null", True), (str(file), False), (new, False)):
        with stream_of(name, standard) as stream:
            assert (stream is not None) is is_stream, name
    with stream_of("-", standard) as stream:
        assert stream is standard
    os.close(keep)
    assert not os.path.exists(new)
    with stream_of("/dev/full", standard) as full, pytest.raises(OutputError, match="cannot write /dev/full"):
        full.write("x")
    ResultFile(file).close()


def stuffed(kind):
    """The two ends of a pipe or socket without room for another byte."""
    reading, writing = os.pipe() if kind == "pipe" else (end.detach() for end in socket.socketpair())
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    return reading, writing


@contextmanager
def signalled(number, begun):
    """This process gets a signal, a moment after something has begun."""

    def interrupt():
        begun.wait(SECONDS)
        time.sleep(0.3)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(("form", "blocking"), [((), True), (("--json",), False), (("--jsonl",), True)])
def test_N005_a_signal_acts_while_the_reader_stalls(streams, scripted, home, form, blocking, monkeypatch):
    """One signal is enough, and what has come is stored."""
    scripted("One two three four five.")
    reading, writing = stuffed("pipe")
    os.set_blocking(writing, blocking)
    begun = threading.Event()
    append = Store.begin_turn
    monkeypatch.setattr(Store, "begin_turn", lambda *a, **k: (begun.set(), append(*a, **k))[1])

    with signalled(signal.SIGTERM, begun):
        code, _, err = streams(*form, "Hi", stdout=writing)
    os.close(reading)
    os.close(writing)
    assert code == 143
    assert err == ""


def test_N005_a_signal_stops_a_batch_while_the_reader_stalls(streams, scripted, tmp_path, monkeypatch):
    scripted(*["One."] * 50)
    reading, writing = stuffed("pipe")
    begun, launch = threading.Event(), ScriptedRunner.launch
    monkeypatch.setattr(ScriptedRunner, "launch", lambda *a, **k: (begun.set(), launch(*a, **k))[1])

    with signalled(signal.SIGINT, begun):
        code, _, _ = streams("batch", jobs(tmp_path, 50), "-o", f"/dev/fd/{writing}")
    assert code == 130
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_N005_the_reader_of_a_reply_leaves(streams, scripted, home, kind, form):
    """What has come is in the history, as interrupted, also where the engine was faster than the reader."""
    scripted("One two three four five six. " * 200, step_seconds=0.02)
    reading, writing = os.pipe() if kind == "pipe" else (end.detach() for end in socket.socketpair())

    def leave():
        if "--json" in form:
            wait_for(lambda: saved(home).text)
        else:
            wait_for(lambda: b"One" in os.read(reading, 4096))
        os.close(reading)

    thread = threading.Thread(target=leave)
    thread.start()
    code, _, err = streams(*form, "--cid", "x", "Hi", stdout=writing)
    thread.join()
    os.close(writing)
    assert (code, err) == (141, "")
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        reply = store.path("x")[-1]
    assert (reply.role, reply.status, reply.finish_reason) == ("assistant", "interrupted", "aborted")
    assert reply.text.startswith("One")


def test_a_slow_reader_gets_everything_from_a_non_blocking_output():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text, got = "x" * 300_000, []

    def read():
        while piece := os.read(reading, 1000):
            got.append(piece)

    thread = threading.Thread(target=read)
    thread.start()
    Output(writing).write(text)
    os.close(writing)
    thread.join()
    assert b"".join(got).decode() == text
    os.close(reading)


def test_read_all_reads_a_closed_socket_to_its_end():
    ours, theirs = socket.socketpair()
    theirs.sendall(b"abc")
    theirs.close()
    assert read_all(ours.fileno()) == b"abc"


def test_an_input_that_can_only_be_written_is_as_good_as_closed(streams, scripted, tmp_path):
    """So nohup begins a program on a terminal. What is there is never read, and nobody is waited for."""
    scripted("x", "x")
    for kind in ("file", "pipe", "device"):
        place = tmp_path / kind
        place.write_bytes(b"old")
        ends = os.pipe() if kind == "pipe" else ()
        fd = ends[1] if ends else os.open(place if kind == "file" else os.devnull, os.O_WRONLY)
        assert streams("Hi", "--no-save", stdin=fd) == (0, "x\n", "")
        for arguments in ((), ("-",), ("batch", "-"), ("history", "import", "-")):
            code, out, err = streams(*arguments, stdin=fd)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert "there is no prompt" in err or "there is nothing on standard input" in err
        for each in ends or (fd,):
            os.close(each)


def test_a_batch_calls_standard_input_by_its_name(streams, scripted, tmp_path):
    scripted("x")
    ours = socket.socket()  # connected to nothing
    code, _, err = streams("batch", "-", stdin=ours.fileno())
    assert (code, err) == (1, "termchat: cannot read standard input: Transport endpoint is not connected\n")
    with open(tmp_path / "lines", "w+b") as file:
        code, _, err = streams("batch", "-", stdin=file.fileno(), stdout=file.fileno())
    assert code == 2
    assert "the file on standard input is both input and output" in err


def test_closed_output_is_known_at_once():
    with pytest.raises(ReaderClosed):
        Output(1, closed=True).write("x")

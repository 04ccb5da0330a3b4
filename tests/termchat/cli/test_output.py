"""Standard output: all of it or a clear end; nothing that can move a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import threading

import pytest

from termchat.cli.console import Console, to_json
from termchat.cli.output import Messages, Output, OutputError, ReaderClosed, one_line


def test_a_closed_pipe_is_noticed():
    read, write = os.pipe()
    os.close(read)
    output = Output(write)
    with pytest.raises(ReaderClosed):
        output.write("x")
    with pytest.raises(ReaderClosed):
        output.check()
    os.close(write)


def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full, pytest.raises(OutputError) as caught:
        Output(full.fileno()).write("x")
    assert str(caught.value) == "cannot write to standard output: No space left on device"


def test_a_closed_output_is_never_written_to():
    output = Output(1, closed=True)
    with pytest.raises(ReaderClosed):
        output.write("x")


@pytest.mark.parametrize("kind", [Output, Messages])
def test_what_is_sent_at_the_same_time_goes_out_one_after_the_other(kind):
    read, write = os.pipe()
    texts = [letter * 300_000 for letter in "abc"]  # each larger than the pipe's buffer
    received = bytearray()

    def drain():
        while piece := os.read(read, 1 << 16):
            received.extend(piece)

    async def main():
        stream = kind(write)
        sending = [asyncio.ensure_future(stream.send(text)) for text in texts]
        for _ in range(20):  # all of them wait for room
            await asyncio.sleep(0)
        reader = threading.Thread(target=drain)
        reader.start()
        await asyncio.wait_for(asyncio.gather(*sending), 60)
        os.close(write)
        await asyncio.to_thread(reader.join)

    asyncio.run(main())
    os.close(read)
    assert received == "".join(texts).encode()


def test_sending_to_a_slow_reader_does_not_block_the_loop():
    read, write = os.pipe()
    text = "0123456789abcdef" * 20_000  # larger than any pipe's buffer
    received = bytearray()

    def drain():
        while piece := os.read(read, 1 << 16):
            received.extend(piece)

    async def main():
        output = Output(write)
        sending = asyncio.ensure_future(output.send(text))
        for _ in range(20):  # the loop turns while nobody reads
            await asyncio.sleep(0)
        assert not sending.done()
        reader = threading.Thread(target=drain)
        reader.start()
        await sending
        os.close(write)
        await asyncio.to_thread(reader.join)

    asyncio.run(main())
    assert received.decode() == text
    os.close(read)


def test_B075_a_reader_that_goes_is_noticed_while_nothing_is_written():
    read, write = os.pipe()

    async def main():
        output, gone = Output(write), asyncio.Event()
        with output.watch(gone.set):
            await asyncio.sleep(0)
            assert not gone.is_set()
            os.close(read)
            await asyncio.wait_for(gone.wait(), 60)
        assert output.closed

    asyncio.run(main())
    os.close(write)


def test_watching_something_else_than_a_pipe_does_nothing(tmp_path):
    async def main():
        with open(tmp_path / "out", "wb") as file:
            called = []
            with Output(file.fileno()).watch(lambda: called.append(1)):
                await asyncio.sleep(0)
            assert called == []

    asyncio.run(main())


def test_watching_a_pipe_opened_for_both_ways_is_no_false_alarm(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR)
    os.write(fd, b"our own output waits in it")

    async def main():
        output, gone = Output(fd), asyncio.Event()
        with output.watch(gone.set):
            await asyncio.sleep(0.05)
        assert not gone.is_set()
        assert not output.closed

    asyncio.run(main())
    os.close(fd)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\nb\tc", "a b c"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("\x9b31m\x07", "\\x9b31m\\x07"),
        ("bidi \u202e", "bidi \\x202e"),
        ("half \ud800", "half \\xd800"),
    ],
)
def test_messages_are_one_harmless_line(text, shown):
    assert one_line(text) == shown


def test_messages_never_raise():
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError):
        os.write(write, b"nor this")
    Messages(write).note("nobody hears this")
    os.close(write)


def test_json_is_strict():
    assert json.loads(to_json({"text": "é\x00\x1b"})) == {"text": "é\x00\x1b"}
    assert "é" in to_json("é")
    with pytest.raises(ValueError):
        to_json(float("nan"))


def test_no_color_and_terminals(monkeypatch):
    main, side = pty.openpty()
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Messages(side).colour
    monkeypatch.setenv("NO_COLOR", "")
    assert Messages(side).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Messages(side).colour
    assert Messages(side).draws
    assert Output(side).is_terminal
    for kind in ("dumb", "", "unknown"):
        monkeypatch.setenv("TERM", kind)
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert Messages(side).is_terminal
        assert not Messages(side).colour
        assert not Messages(side).draws
    os.close(main)
    os.close(side)


def test_a_person_is_told_which_pipe_nobody_has_written(tmp_path, monkeypatch):
    monkeypatch.setattr("termchat.cli.console.PATIENCE_SECONDS", 0.01)
    main, side = pty.openpty()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    console = Console(Output(side), Messages(side), stdin=side)
    reader = threading.Thread(target=lambda: read.append(console.read_given(fifo, 100).text))
    reader.start()
    said = b""
    while b"fifo" not in said:
        said += os.read(main, 1000)
    assert said.startswith(b"termchat: waiting for what is written to /")
    fifo.write_text("here it is")
    reader.join()
    assert read == ["here it is"]
    os.close(main)
    os.close(side)


@pytest.mark.parametrize(
    ("typed", "yes"), [(b"\n", True), (b"y\n", True), (b"n\n", False), (b"maybe\n", False)]
)
def test_questions(typed, yes):
    main, side = pty.openpty()
    os.write(main, typed)
    console = Console(Output(side), Messages(side), stdin=side)
    assert console.interactive
    assert console.ask("Download it?") is yes
    os.close(main)
    os.close(side)

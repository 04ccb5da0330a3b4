"""Events on their way to their readers: when they are seen, that none is lost, and who is woken."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from engine.commands import Answer, Outcome
from engine.outbox import CLOSED, Outbox, call_into, wake
from engine.stream import Mailbox
from engine.types import EngineError, Finished, TextDelta, Timings, Usage


def delta(number: int) -> TextDelta:
    return TextDelta(f"{number} ", (number,))


FINAL = Finished("stop", "", (), Usage(), Timings(), None, 0)


class Forward:
    """Keeps whom it is to wake."""

    def __init__(self) -> None:
        self.woken: list[list[Mailbox]] = []

    def __call__(self, mailboxes: list[Mailbox]) -> None:
        self.woken.append(mailboxes)


async def waiting(mailbox: Mailbox) -> asyncio.Task[Outcome]:
    """A reader that waits."""
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    return reader


async def test_an_event_is_seen_when_it_was_sent_and_only_readers_that_wait_are_woken() -> None:
    forward = Forward()
    outbox = Outbox(forward)
    waited_for, other = outbox.open(1, FINAL), outbox.open(2, FINAL)
    reader = await waiting(waited_for)
    outbox.emit(1, delta(1))
    outbox.emit(2, delta(2))
    early = await waiting(other)
    early.cancel()
    await asyncio.gather(early, return_exceptions=True)
    other = outbox.open(3, FINAL)
    outbox.emit(3, delta(3))
    outbox.send()
    assert await other.get() == delta(3), "it is there without being woken for"
    outbox.emit(1, delta(4))
    outbox.send()
    assert forward.woken == [], "the sender does not forward"
    outbox.emit(1, FINAL)
    outbox.emit(3, FINAL)
    outbox.send()
    outbox.start()
    outbox.end(None)
    outbox.join(60)
    woken = forward.woken[0]
    assert waited_for in woken
    assert other not in woken
    wake(woken)
    assert await reader == TextDelta("1 4 ", (1, 4)), "it is told once, and finds all"
    assert await waited_for.get() == FINAL


async def test_what_is_open_at_the_end_gets_its_last_event_once_and_so_does_what_comes_later() -> None:
    forward = Forward()
    outbox = Outbox(forward)
    outbox.start()
    last, broken = replace(FINAL, seed=7), EngineError("engine_failed", "broken")
    streams = [outbox.open(number, last) for number in (1, 2, 3)]
    call, reader = outbox.open(-2, Answer()), await waiting(streams[2])
    outbox.emit(1, delta(1))
    outbox.emit(1, FINAL)
    outbox.emit(1, FINAL)
    outbox.emit(1, delta(2))
    outbox.emit(2, delta(3))
    outbox.end(broken)
    outbox.end(broken)
    outbox.join(60)
    assert [streams[0].take(), streams[0].take()] == [delta(1), FINAL]
    assert [streams[1].take(), streams[1].take()] == [delta(3), replace(last, reason="error", error=broken)]
    assert call.take() == Answer(None, broken)
    wake([mailbox for woken in forward.woken for mailbox in woken])
    assert await reader == replace(last, reason="error", error=broken)
    assert outbox.open(4, last).take() == replace(last, reason="error", error=broken)
    closed = Outbox(forward)
    stream, call = closed.open(1, last), closed.open(-2, Answer())
    closed.end(None)
    assert stream.take() == replace(last, reason="aborted"), "nobody asked for it, nothing broke"
    assert call.take() == Answer(None, CLOSED)


async def test_a_reader_that_only_looks_in_is_not_woken() -> None:
    mailbox = Mailbox()
    assert mailbox.take() is None
    assert [mailbox.put(delta(1)), mailbox.put(delta(2)), mailbox.put(FINAL)] == [False] * 3
    assert [mailbox.take() for _ in range(3)] == [TextDelta("1 2 ", (1, 2)), FINAL, FINAL]


async def test_the_final_event_stays_for_every_reader() -> None:
    mailbox = Mailbox()
    mailbox.put(delta(1))
    mailbox.put(FINAL)
    assert [await mailbox.get() for _ in range(3)] == [delta(1), FINAL, FINAL]


async def test_a_reader_that_did_not_wait_after_all_is_woken_the_next_time() -> None:
    """The event comes between its first look and its last: it is told, too, but must not count on that."""
    mailbox = Mailbox()
    reader = await waiting(mailbox)
    assert mailbox.put(delta(1))
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert await mailbox.get() == delta(1)
    reader = await waiting(mailbox)
    wake([mailbox])  # of the event that was read meanwhile
    await asyncio.sleep(0)
    assert not reader.done()
    assert mailbox.put(delta(2))
    wake([mailbox])
    assert await reader == delta(2)


def test_a_reader_that_could_not_be_woken_is_tried_again() -> None:
    woken: list[list[Mailbox]] = []

    def forward(mailboxes: list[Mailbox]) -> None:
        woken.append(mailboxes)
        if len(woken) == 1:
            raise SystemExit

    outbox = Outbox(forward)
    mailbox = outbox.open(1, FINAL)
    outbox.start()
    outbox.end(None)
    outbox.join(60)
    assert woken == [[mailbox]] * 2


async def test_threads_that_send_at_the_same_time_lose_nothing_and_keep_the_order() -> None:
    """Each may send what another has emitted, while the readers read, wait, or are away."""
    loop = asyncio.get_running_loop()
    outbox = Outbox(lambda mailboxes: call_into(loop, wake, mailboxes))
    outbox.start()
    mailboxes = [outbox.open(id, FINAL) for id in range(3)]

    def emit(id: int) -> None:
        for number in range(2000):
            outbox.emit(id, delta(number))
            outbox.send()
        outbox.emit(id, FINAL)
        outbox.send()

    async def read(mailbox: Mailbox, pause: float) -> list[int]:
        numbers: list[int] = []
        while isinstance(event := await mailbox.get(), TextDelta):
            numbers += event.token_ids
            if pause:
                await asyncio.sleep(pause)
        return numbers

    threads = [threading.Thread(target=emit, args=(id,)) for id in range(3)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(60):
        read_all = [read(mailbox, pause) for mailbox, pause in zip(mailboxes, (0, 0, 0.001), strict=True)]
        found = await asyncio.gather(*read_all)
    for thread in threads:
        thread.join()
    outbox.end(None)
    await asyncio.to_thread(outbox.join, 30)
    assert found == [list(range(2000))] * 3

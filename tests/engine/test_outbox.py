"""Events on their way to their readers: when they are seen, that none is lost, and who is woken."""

from __future__ import annotations

import asyncio
import threading

from engine.outbox import Outbox, call_into, wake
from engine.stream import Mailbox
from engine.types import Event, Finished, TextDelta, Timings, Usage


def delta(number: int) -> TextDelta:
    return TextDelta(f"{number} ", (number,))


FINAL = Finished("stop", "", (), Usage(), Timings(), None, 0)


class Forward:
    """Keeps whom it is to wake; `open` is what a loop that still runs answers."""

    def __init__(self) -> None:
        self.woken: list[list[Mailbox]] = []
        self.open = True

    def __call__(self, mailboxes: list[Mailbox]) -> bool:
        self.woken.append(mailboxes)
        return self.open


async def waiting(mailbox: Mailbox) -> asyncio.Task[Event]:
    """A reader that waits."""
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    return reader


async def test_an_event_is_seen_when_it_was_sent_and_only_readers_that_wait_are_woken() -> None:
    forward = Forward()
    outbox = Outbox(forward)
    waited_for, other = Mailbox(), Mailbox()
    reader = await waiting(waited_for)
    outbox.emit(waited_for, delta(1))
    outbox.emit(other, delta(2))
    early = await waiting(other)
    early.cancel()
    await asyncio.gather(early, return_exceptions=True)
    other = Mailbox()
    outbox.emit(other, delta(3))
    outbox.send()
    assert await other.get() == delta(3), "it is there without being woken for"
    outbox.emit(waited_for, delta(4))
    outbox.send()
    assert forward.woken == [], "the sender does not forward"
    outbox.start()
    outbox.close()
    (woken,) = forward.woken
    assert waited_for in woken
    assert other not in woken
    wake(woken)
    assert await reader == TextDelta("1 4 ", (1, 4)), "it is told once, and finds all"
    reader = await waiting(waited_for)
    outbox.emit(waited_for, FINAL)
    outbox.send()
    assert forward.woken[1:] == [[waited_for]], "it goes without the thread when that has ended"
    wake([waited_for])
    assert await reader == FINAL


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


def test_a_closed_loop_ends_the_thread() -> None:
    forward = Forward()
    forward.open = False
    outbox = Outbox(forward)
    outbox.start()

    async def send() -> None:
        for number in range(3):
            mailbox = Mailbox()
            reader = await waiting(mailbox)
            outbox.emit(mailbox, delta(number))
            outbox.send()
            reader.cancel()

    asyncio.run(send())
    outbox.close()
    assert len(forward.woken) == 1


async def test_threads_that_send_at_the_same_time_lose_nothing_and_keep_the_order() -> None:
    """Each may send what another has emitted, while the readers read, wait, or are away."""
    loop = asyncio.get_running_loop()
    outbox = Outbox(lambda mailboxes: call_into(loop, wake, mailboxes))
    outbox.start()
    mailboxes = [Mailbox() for _ in range(3)]

    def emit(mailbox: Mailbox) -> None:
        for number in range(2000):
            outbox.emit(mailbox, delta(number))
            outbox.send()
        outbox.emit(mailbox, FINAL)
        outbox.send()

    async def read(mailbox: Mailbox, pause: float) -> list[int]:
        numbers: list[int] = []
        while isinstance(event := await mailbox.get(), TextDelta):
            numbers += event.token_ids
            if pause:
                await asyncio.sleep(pause)
        return numbers

    threads = [threading.Thread(target=emit, args=(mailbox,)) for mailbox in mailboxes]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(60):
        read_all = [read(mailbox, pause) for mailbox, pause in zip(mailboxes, (0, 0, 0.001), strict=True)]
        found = await asyncio.gather(*read_all)
    for thread in threads:
        thread.join()
    await asyncio.to_thread(outbox.close)
    assert found == [list(range(2000))] * 3

"""Events on their way to the loop: when they are seen, and that none is lost or seen twice."""

import threading

from engine.outbox import Outbox


class Forward:
    """Keeps what is forwarded; `open` is what a loop that still runs answers."""

    def __init__(self):
        self.batches = []
        self.open = True

    def __call__(self, events):
        self.batches.append(events)
        return self.open


def test_what_was_emitted_before_it_was_sent_goes_together_and_nothing_else():
    forward = Forward()
    outbox = Outbox(forward)
    outbox.emit("a", 1)
    outbox.emit("b", 2)
    outbox.send()
    outbox.emit("a", 3)
    assert forward.batches == [], "the sender does not forward"
    outbox.send()
    outbox.send()
    outbox.emit("a", 4)
    outbox.start()
    outbox.close()
    assert forward.batches == [[("a", 1), ("b", 2)], [("a", 3)]], "an event is seen only when it was sent"
    outbox.send()
    assert forward.batches[2:] == [[("a", 4)]], "it goes without the thread when that has ended"


def test_a_closed_loop_ends_the_thread():
    forward = Forward()
    forward.open = False
    outbox = Outbox(forward)
    outbox.start()
    for number in range(3):
        outbox.emit("a", number)
        outbox.send()
    outbox.close()
    assert forward.batches == [[("a", 0)]]


def test_threads_that_send_at_the_same_time_lose_nothing_and_keep_the_order():
    """Each may send what another has emitted."""
    forward = Forward()
    outbox = Outbox(forward)
    outbox.start()

    def emit(name):
        for number in range(2000):
            outbox.emit(name, number)
            outbox.send()

    threads = [threading.Thread(target=emit, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outbox.close()
    found = [event for batch in forward.batches for event in batch]
    for name in "abc":
        assert [number for mailbox, number in found if mailbox == name] == list(range(2000))

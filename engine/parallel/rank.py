"""A rank's process: `python -m engine.parallel.rank PARENT FD...`, one connection for each rank.

The first rank imports what all need and forks into the others: see `team`. Here nothing is decided; a rank
carries out what it is asked to, and ends when nobody is left to ask.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Become the ranks, and serve as one of them."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the engine's process hears them, and ends this one
    parent, *descriptors = map(int, arguments)
    die_with(parent)
    from .distributed import Distributed  # with torch, which takes a second: once for all
    from .rank_model import RankModel

    check_loopback()
    listening = socket.create_server(("127.0.0.1", 0), backlog=len(descriptors))
    port, rank, first = listening.getsockname()[1], 0, os.getpid()
    for other in range(1, len(descriptors)):
        if os.fork() == 0:
            rank = other
            die_with(first)
            listening.close()
            break
    for other, descriptor in enumerate(descriptors):
        if other != rank:
            os.close(descriptor)
    connection = socket.socket(fileno=descriptors[rank])
    threading.Thread(target=_end_with, args=(connection,), name="connection", daemon=True).start()
    store = port, None if rank else listening
    serve(connection, RankModel(rank, lambda split, rank, device: Distributed(split, rank, device, *store)))


def check_loopback() -> None:
    """OSError: nothing on this machine could connect to anything else on it."""
    with socket.create_server(("127.0.0.1", 0)) as trial:
        try:
            socket.create_connection(trial.getsockname(), 5).close()
        except OSError as error:
            raise OSError(f"the loopback interface (127.0.0.1) is down, which ranks need: {error}") from None


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, also one that is stopped or deaf (prctl(2); Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end_with(connection: socket.socket) -> None:
    """End when the other end of the connection does, whatever this process is doing."""
    poll = select.poll()
    poll.register(connection, 0)  # nothing but the end
    poll.poll()
    os._exit(0)


def serve(connection: socket.socket, model: Any) -> NoReturn:
    """Answer until nobody asks. Whatever fails ends this rank, and with it the others."""
    from .channel import COPIES, ERROR, JSON, MASK, PROGRESS, STEP_WITH_LOGITS, Channel, json_frame

    channel = Channel(connection)
    channel.send(json_frame(JSON, {"pid": os.getpid()}))
    message = None

    def progress(share: float) -> None:
        channel.send(json_frame(PROGRESS, share))

    def mask() -> bytearray:
        found = channel.receive()
        assert found is not None, "the connection blocks"
        assert found.kind == MASK, "a step without its mask is followed by that"
        return found.body

    try:
        while True:
            message = channel.receive()
            assert message is not None, "the connection blocks"
            if message.kind == COPIES:
                model.copy(message.body)
            elif message.kind == JSON:
                question = message.json()
                channel.send(json_frame(JSON, model.answer(question.pop("ask"), question, progress)))
            else:
                channel.send(model.step(message.body, mask, logits=message.kind == STEP_WITH_LOGITS))
    except (EOFError, ConnectionError):
        os._exit(0)
    except BaseException as error:
        code, words = getattr(error, "code", "engine_failed"), getattr(error, "message", None)
        if words is None:
            time.sleep(0.5)  # if another rank has ended, that is the news: this one ends before it complains
            traceback.print_exc()
            sys.stderr.flush()
            code = "out_of_memory" if isinstance(error, MemoryError) else "engine_failed"
            words = f"a process of the model failed: {type(error).__name__}: {error}"
        if message is not None and message.kind != JSON:
            code = "engine_failed"  # in the middle of a step that the others compute: none can go on
        channel.send(json_frame(ERROR, {"code": code, "message": str(words)}))
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

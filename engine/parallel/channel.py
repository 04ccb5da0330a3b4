"""Messages between an engine and its ranks: a kind of one byte, a length, and so many bytes.

Both ends are ours, and on one machine. Nothing is pickled: what is not an array is JSON.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

HEADER = struct.Struct("<cQ")

JSON = b"J"
"""A question, by its name in "ask", or the answer to one."""
STEP = b"S"
"""A step's buffer."""
STEP_WITH_LOGITS = b"L"
MASK = b"M"
"""The end of a step whose buffer came without it: the mask, for the rank that samples."""
COPIES = b"C"
"""int32 [2, n]: blocks to copy from and to, before the next step; there is no answer."""
RESULT = b"R"
"""What came of a step: `RESULT_HEADER`, tokens, logits."""
PROGRESS = b"P"
"""JSON: how much of its files a rank has used, 0 to 1; the answer is still to come."""
ERROR = b"E"
"""JSON: code and message. The last that is heard of a rank."""

RESULT_HEADER = struct.Struct("<QQQ")
"""Samples, columns of logits (0: there are none), bytes of experts that were read."""


class Message(NamedTuple):
    """What came."""

    kind: bytes
    body: bytearray

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


def frame(kind: bytes, *parts: Any) -> list[memoryview]:
    """A message as the buffers to send, which are not copied."""
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    return [memoryview(HEADER.pack(kind, sum(view.nbytes for view in views))), *views]


def json_frame(kind: bytes, body: Any) -> list[memoryview]:
    """A message with a JSON body."""
    return frame(kind, json.dumps(body).encode())


class Channel:
    """One end of a connection. Owns the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._header: Message | None = None
        self._buffer = bytearray(HEADER.size)
        self._filled = 0

    def receive(self, flags: int = 0) -> Message | None:
        """The next message; None: it has not come as a whole, with MSG_DONTWAIT. EOFError: the end."""
        while True:
            while self._filled < len(self._buffer):
                try:
                    count = self.socket.recv_into(memoryview(self._buffer)[self._filled :], 0, flags)
                except BlockingIOError:
                    return None
                except ConnectionError:
                    raise EOFError from None
                if not count:
                    raise EOFError
                self._filled += count
            taken, self._filled = self._buffer, 0
            if self._header is not None:
                message, self._header = Message(self._header.kind, taken), None
                self._buffer = bytearray(HEADER.size)
                return message
            kind, size = HEADER.unpack(taken)
            self._header, self._buffer = Message(kind, bytearray()), bytearray(size)

    def send(self, parts: list[memoryview]) -> None:
        """Send a message, however long that takes. ConnectionError: nobody is there."""
        for part in parts:
            self.socket.sendall(part)

    def close(self) -> None:
        """The other end reads the end."""
        self.socket.close()

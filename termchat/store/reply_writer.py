"""A reply while it is being written: buffered, and saved so often that a crash loses half a second of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from ..messages import StoredMessage
from .errors import StoreBusyError, StoreError
from .messages import MessageTable
from .values import clean

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
"""From one save to the next, where text comes in small pieces."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
"""After a save that failed (a full disk), each pause is twice as long as the one before."""

_SHORT_WAIT_S = 0.1  # a stream is not held up by another program's lock: what is not saved now is saved later


class ReplyWriter:
    """Writes one reply. As a context manager it marks the reply as interrupted if nobody finished it."""

    def __init__(
        self,
        store: MessageTable,
        message: StoredMessage,
        flush_every: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """flush_every: seconds. Made by `Store.begin_reply`, `regenerate` and `resume_reply`."""
        self._store = store
        self._message = message
        self._every = flush_every
        self._monotonic = monotonic
        self._text = [message.text]
        self._thinking = [message.thinking]
        self._dirty = False
        self._saved = float("-inf")
        self._pause = 0.0
        self._finished = False

    @property
    def message_id(self) -> int:
        """The reply's message."""
        return self._message.id

    def append(self, text: str, thinking: str = "") -> None:
        """Add to the reply. Saved at once if the last time is long enough ago, else by a later call.

        StoreError: it cannot be saved (a lock that passes is no error here: it is tried again).
        """
        if text:
            self._text.append(text)
        if thinking:
            self._thinking.append(thinking)
        self._dirty = self._dirty or bool(text or thinking)
        self.tick()

    def replace(self, text: str, thinking: str) -> None:
        """The reply so far is this, and not what was appended; saved like what is appended."""
        self._text, self._thinking, self._dirty = [text], [thinking], True

    def tick(self) -> None:
        """Save what is due. Called now and then while nothing is appended, it saves the tail too."""
        due = self._saved + max(self._every, self._pause)
        if not self._dirty or self._finished or self._monotonic() < due:
            return
        self._saved = self._monotonic()
        try:
            with self._store.database.write(wait=_SHORT_WAIT_S) as db:
                db.execute(
                    "UPDATE message SET text = ?, thinking = ? WHERE id = ?",
                    (clean("".join(self._text)), clean("".join(self._thinking)), self._message.id),
                )
        except StoreBusyError:
            log.warning("reply %d is not saved yet: the database is locked", self._message.id)
        except StoreError:
            self._pause = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            raise
        else:
            self._dirty, self._pause = False, 0.0

    def finish(
        self,
        status: Literal["done", "interrupted", "error"] = "done",
        finish_reason: str | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> StoredMessage | None:
        """Save the whole reply and how it ended; a second call does nothing but return it.

        A reply that was interrupted before it had a word is removed, and None returned: the one it should
        have replaced is shown again. StoreError: it cannot be saved.
        """
        store, reply = self._store, self._message
        with store.database.write() as db:
            if not self._finished:
                if status == "interrupted" and not any((*self._text, *self._thinking)):
                    store.drop_reply(reply.id)
                else:
                    db.execute(
                        "UPDATE message SET text = ?, thinking = ?, status = ?, finish_reason = ?, "
                        "metrics = ?, writer = NULL WHERE id = ?",
                        (
                            clean("".join(self._text)),
                            clean("".join(self._thinking)),
                            status,
                            finish_reason,
                            clean(json.dumps(dict(metrics or {}), allow_nan=False)),
                            reply.id,
                        ),
                    )
                    db.execute(
                        "UPDATE conversation SET updated = ? WHERE id = ?",
                        (store.clock(), reply.conversation_id),
                    )
            rows = store.database.query("SELECT 1 FROM message WHERE id = ?", reply.id)
        self._finished = True
        return store.message(reply.id) if rows else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self.finish("interrupted")

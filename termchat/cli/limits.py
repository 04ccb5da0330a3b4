"""What the system did not grant: threads, open files, memory, a place on a disk, as one sentence each."""

from __future__ import annotations

import errno
import os

FILES = "the system allows this program too few open files; raise the limit (ulimit -n)"
THREADS = "the system allows this program too few threads; raise the limit (ulimit -u, or the container's)"
MEMORY = "the system gives this program too little memory; free some, or raise the limit (ulimit -v)"

_BY_PLACE = (errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM)
"""A disk or a network file system that fails, or a place that is closed."""

_BY_NUMBER = {errno.EMFILE: FILES, errno.ENFILE: FILES, errno.EAGAIN: THREADS, errno.ENOMEM: MEMORY}
_BY_WORDS = {
    "can't start new thread": THREADS,
    "can't allocate lock": MEMORY,
    "cannot allocate memory": MEMORY,  # the dynamic loader, on a library
    "failed to map segment": MEMORY,
}


def refused(error: BaseException) -> str | None:
    """Which limit an error comes from, itself or what it was raised from; None: from none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return MEMORY
        if isinstance(seen, OSError) and not isinstance(seen, BlockingIOError) and seen.errno in _BY_NUMBER:
            return _BY_NUMBER[seen.errno]
        place = seen.filename if isinstance(seen, OSError) and seen.errno in _BY_PLACE else None
        if isinstance(seen, OSError) and isinstance(place, (str, bytes)):
            return f"the system refuses {os.fsdecode(place)}: {seen.strerror}"
        if isinstance(seen, (RuntimeError, ImportError, OSError)):
            words = str(seen).lower()
            for part, sentence in _BY_WORDS.items():
                if part in words:
                    return sentence
        seen = seen.__cause__ or seen.__context__
    return None

"""How long a server asks to wait: Retry-After (RFC 9110, 10.2.3), and the Hub's RateLimit (an IETF draft)."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from .. import units

LONGEST_S = 300.0
"""So long is waited for without being asked again; the Hub counts requests in windows of five minutes."""

_FOREVER_S = 10 * 365 * 86400.0


def told(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that an answer asks to wait; None: it says nothing that makes sense.

    now: for tests. A date counts from the server's own Date, so that a clock that is wrong here does no harm.
    """
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return _bounded(value)
    if value:
        date, since = _date(value), _date(headers.get("Date", ""))
        if date is not None:
            here = time.time() if now is None else now
            return max(0.0, date - (since if since is not None else here))
    found = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]+)", headers.get("RateLimit", ""))
    return _bounded(found[1]) if found is not None else None


def when(seconds: float) -> str:
    """When a long wait is over: `in 24 h 0 min (at 2026-12-01 08:00)`."""
    if seconds >= _FOREVER_S:
        return "much later"
    at = datetime.now(UTC).astimezone() + timedelta(seconds=seconds)
    span = f"{round(seconds / 86400)} days" if seconds > 2 * 86400 else units.duration(seconds)
    return f"in {span} (at {at:%Y-%m-%d %H:%M})"


def _bounded(digits: str) -> float:
    return _FOREVER_S if len(digits) > 15 else min(_FOREVER_S, math.ceil(float(digits)))


def _date(value: str) -> float | None:
    try:
        found = email.utils.parsedate_to_datetime(value)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None

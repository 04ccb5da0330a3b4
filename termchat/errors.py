"""The base of every error a user can act on; what a name that nobody knows may have meant."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 60


class UserError(Exception):
    """One plain sentence: what happened, which file or option, what to do. Shown without a traceback."""


def shown(value: object) -> str:
    """A value out of a file or an argument as part of a sentence: cut, however long and deep it is."""
    return _brief.repr(value)


def fault(error: BaseException, log: object = "the log") -> str:
    """The sentence on an error that nobody has foreseen. log: where its details are."""
    text = " ".join(str(error).split())[:500]
    return f"termchat has a fault: {type(error).__name__}: {text}; {log} has the details"


_LIKE = 0.55  # less is no likeness
_BEGINS = 2  # so many characters begin too many names
_LISTED = 20


def did_you_mean(
    name: str, known: Iterable[str], form: str = "{!r}", *, most: int = 1, like: float = 0.0
) -> str:
    """What follows a name nobody knows: `did you mean 'x'?`, with what is most like it, or which are known.

    form: how a known name is written. most: how many are named at most. like: how much like it one has to be,
    0 to 1, or nothing is said. Of names in tables, such as `ui.theme`, the last part alone will do, or one
    like it; of all, their beginning.
    """
    import difflib  # only mistakes need it

    known = list(known)
    near = [each for each in known if each.partition(".")[2] == name][:most] if name else []
    if len(name) > _BEGINS:
        near = near or [each for each in known if each.startswith(name)][:most]
    near = near or difflib.get_close_matches(name[:100], known, n=most, cutoff=like or _LIKE)
    if not near:  # as above, with a slip
        last = {each.partition(".")[2]: each for each in known if "." in each}
        close = difflib.get_close_matches(name[:100], last, n=most, cutoff=like or _LIKE)
        near = [last[each] for each in close]
    if near:
        return f"did you mean {' or '.join(map(form.format, near))}?"
    if like:
        return ""
    more = ", ..." if len(known) > _LISTED else ""
    return f"known are {', '.join(map(form.format, known[:_LISTED]))}{more}"

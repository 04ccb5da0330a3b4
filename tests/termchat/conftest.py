"""What the tests of the application share."""

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Modes of files are those that most users have."""
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.fixture(scope="session", autouse=True)
def styles_parsed_once() -> Iterator[None]:
    """The full screen's styles are read once for all applications: it is a fifth of a start."""
    from textual.css.stylesheet import Stylesheet

    parse, parsed = Stylesheet.parse, defaultdict[object, dict[object, object]](dict)

    def parse_once(sheet: Any) -> None:
        sheet._parse_cache = parsed[tuple(sorted(sheet._variables.items()))]
        parse(sheet)
        sheet._parse_cache = {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "parse", parse_once)
        yield

"""What the tests of the application share."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Modes of files are those that most users have."""
    old = os.umask(0o022)
    yield
    os.umask(old)

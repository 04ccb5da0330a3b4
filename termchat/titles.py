"""What people call a model, by the name or path that finds it."""

from __future__ import annotations

import os


def title_of(reference: str) -> str:
    """What people call a model that is found by this name or path: the last part of it, or OWNER/NAME for a
    snapshot's folder in a cache of the Hub (models--OWNER--NAME/snapshots/REVISION).
    """
    *_, repository, snapshots, last = ["", "", *reference.rstrip(os.sep).split(os.sep)]
    if snapshots == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/")
    return last

"""Downloads: bring a registered model to this machine, once, however many ask for it."""

from .check import Checked, check, mend, origin_of
from .errors import DownloadError
from .model import ensure, repair
from .progress import Progress, ProgressCallback, format_progress

__all__ = [
    "Checked",
    "DownloadError",
    "Progress",
    "ProgressCallback",
    "check",
    "ensure",
    "format_progress",
    "mend",
    "origin_of",
    "repair",
]

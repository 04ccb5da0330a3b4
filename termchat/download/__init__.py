"""Downloads: bring a registered model to this machine, once, however many ask for it."""

from .check import Checked, check, mend, origin_of
from .errors import DownloadError
from .model import ensure, look_up, repair
from .progress import Meter, Progress, ProgressCallback, format_progress

__all__ = [
    "Checked",
    "DownloadError",
    "Meter",
    "Progress",
    "ProgressCallback",
    "check",
    "ensure",
    "format_progress",
    "look_up",
    "mend",
    "origin_of",
    "repair",
]

"""What low precision costs: the same text read by two models, and how far apart they are."""

from .divergence import Divergence, Positions, joined
from .measure import WINDOW, Window, measure, windows
from .texts import Text, TextError, bundled, read_text

__all__ = [
    "WINDOW",
    "Divergence",
    "Positions",
    "Text",
    "TextError",
    "Window",
    "bundled",
    "joined",
    "measure",
    "read_text",
    "windows",
]

"""A model's name on the Hub: hf:OWNER/REPOSITORY[:WHICH][:REVISION].

WHICH is the name of a quantization (Q4_K_M, in any case, with or without separators), a file that ends in
.gguf, or `safetensors`. Whatever else stands behind a colon is a revision: a branch, a tag or a commit. So
one part is enough to say either, and nothing needs to be asked to know which it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from ..errors import UserError, shown
from . import PREFIX
from .quantization import is_quantization

MAIN = "main"
SAFETENSORS = "safetensors"

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORM = "hf:OWNER/REPOSITORY[:QUANTIZATION or FILE.gguf][:REVISION]"
_PAGE = re.compile(
    rf"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)?(?P<repo>{_REPO.pattern})"
    r"(?:(?P<parts>(?::[\w./-]+)+)|"
    r"(?:/(?:blob|resolve|tree)/(?P<revision>[\w.-]+)(?:/(?P<file>[^?#:]+))?)?/?(?:[?#].*)?)",
    re.ASCII,
)
_OTHER_FILES = (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".json")


class HubNameError(UserError):
    """A name that begins with hf: and says nothing that could be found."""


class HubName(NamedTuple):
    """What a name asks for. which: a quantization, a file or `safetensors`; "" leaves the choice."""

    repo: str
    which: str = ""
    revision: str = MAIN

    @classmethod
    def parse(cls, name: str) -> Self:
        """The parts of a name. HubNameError."""
        repo, *parts = name.removeprefix(PREFIX).split(":")
        if not is_repo(repo):
            hint = "; a revision stands behind a colon" if "@" in repo else ""
            raise HubNameError(f"{shown(name)} is not of the form {_FORM}{hint}")
        which, revision = "", ""
        for part in parts:
            if is_which(part) and not which and not revision:
                which = part
            elif part.lower().endswith(_OTHER_FILES):
                raise HubNameError(
                    f"{shown(name)} names a file that is no GGUF file; a model in safetensors is "
                    f"hf:{repo}:{SAFETENSORS}"
                )
            elif is_revision(part) and not revision:
                revision = part
            else:
                raise HubNameError(f"{shown(name)} is not of the form {_FORM}")
        return cls(repo, which, revision or MAIN)

    @property
    def wants_file(self) -> bool:
        """Whether it names one file."""
        return self.which.lower().endswith(".gguf")

    def __str__(self) -> str:
        parts = [self.repo, *([self.which] if self.which else [])]
        return PREFIX + ":".join([*parts, *([self.revision] if self.revision != MAIN else [])])


def is_which(part: str) -> bool:
    """Whether a part of a name says which of the files; else it is a revision."""
    folders = part.split("/")
    file = part.lower().endswith(".gguf") and part.isprintable() and "" not in folders and ".." not in folders
    return file or part.lower() == SAFETENSORS or (is_quantization(part) and not is_commit(part))


def is_repo(text: str) -> bool:
    """Whether it can be OWNER/REPOSITORY."""
    return _REPO.fullmatch(text) is not None and ".." not in text


def is_revision(text: str) -> bool:
    """Whether it can be a branch, a tag or a commit."""
    return _REVISION.fullmatch(text) is not None and ".." not in text


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit, which never changes."""
    return _COMMIT.fullmatch(revision) is not None


def name_of_page(text: str) -> str | None:
    """The name of what an address of the Hub's pages or a bare OWNER/REPOSITORY is for; None: neither.

    Both may end as names do, in :WHICH, as other programs take them.
    """
    found = _PAGE.fullmatch(text.removeprefix("HF:"))
    if found is None or ".." in text or found["repo"].lower().endswith((".gguf", *_OTHER_FILES)):
        return None
    if found["parts"]:
        try:
            name = HubName.parse(PREFIX + found["repo"] + found["parts"])
        except HubNameError:
            return None
        return str(name)
    file = found["file"] if is_which(found["file"] or "") else None
    revision = found["revision"] if found["revision"] != MAIN else None
    return PREFIX + ":".join(part for part in (found["repo"], file, revision) if part)

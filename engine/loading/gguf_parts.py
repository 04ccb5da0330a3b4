"""A GGUF model in several files, as gguf-split makes them: NAME-00001-of-00003.gguf and so on.

The first part holds the metadata; tensors lie in any of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from .fields import Fields
from .gguf import GGUFFile, read_gguf
from .refusal import invalid, shown
from .stored import StoredTensor

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
_MAX_PARTS = 1 << 10


def whole_name(name: str) -> str:
    """A file's name without the number of its part."""
    match = _NAME.fullmatch(name)
    return f"{match[1]}{match[4]}" if match else name


def first_part(names: list[str]) -> str | None:
    """The first part, where these names are all the parts of one model."""
    matches = [match for match in map(_NAME.fullmatch, sorted(names)) if match]
    wanted = [(number, len(names)) for number in range(1, len(names) + 1)]
    alike = len({match[1] for match in matches}) == 1
    return min(names) if alike and [(int(m[2]), int(m[3])) for m in matches] == wanted else None


def _place(file: GGUFFile) -> tuple[int, int]:
    """Which part a file is (from 0), and of how many."""
    fields = Fields(file.path, file.metadata)
    count = fields.integer("split.count", 0, 1 << 16, default=1)
    if count > _MAX_PARTS:
        fields.fail("split.count", f"is {count}; at most {_MAX_PARTS} parts are supported")
    return (fields.integer("split.no", 0, count - 1, default=0), count) if count > 1 else (0, 1)


def read_gguf_model(path: str | Path) -> GGUFFile:
    """The header of a model in one file, or in parts, of which any may be named.

    Raises EngineError(model_invalid) with one sentence that names the file, and the part that is missing.
    """
    file = read_gguf(path)
    number, count = _place(file)
    if count < 2:
        return file
    match = _NAME.fullmatch(file.path.name)
    if match is None or (int(match[2]), int(match[3])) != (number + 1, count):
        raise invalid(
            file.path,
            f"this is part {number + 1} of {count}; to find the others its name must end in "
            f"-{number + 1:05}-of-{count:05}.gguf, as gguf-split names them",
        )
    paths = [file.path.with_name(f"{match[1]}-{i:05}-of-{count:05}{match[4]}") for i in range(1, count + 1)]
    for index, part in enumerate(paths):
        if not os.path.exists(part):
            raise invalid(
                file.path,
                f"this is part {number + 1} of {count}, and part {index + 1} ({shown(part.name)}) is not "
                "beside it; download all parts into one folder and name the first",
            )
    parts = [file if i == number else read_gguf(part) for i, part in enumerate(paths)]
    tensors: dict[str, StoredTensor] = {}
    for index, part_file in enumerate(parts):
        if _place(part_file) != (index, count):
            raise invalid(part_file.path, f"this is not part {index + 1} of {count} (split.no, split.count)")
        for name, tensor in part_file.tensors.items():
            if name in tensors:
                raise invalid(part_file.path, f"tensor {shown(name)} is in another part as well")
            tensors[name] = tensor
    declared = Fields(parts[0].path, parts[0].metadata).integer(
        "split.tensors.count", 0, 1 << 31, default=len(tensors)
    )
    if declared != len(tensors):
        raise invalid(
            parts[0].path, f"split.tensors.count is {declared}, but the parts hold {len(tensors)} tensors"
        )
    metadata = {key: value for key, value in parts[0].metadata.items() if not key.startswith("split.")}
    return parts[0]._replace(metadata=metadata, tensors=tensors)

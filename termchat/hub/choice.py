"""Which files of a repository are the model that is asked for; the best for this machine if nobody says."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

from .. import units
from ..errors import UserError, did_you_mean, shown
from .listing import HubFile, Listing, total_size
from .name import SAFETENSORS, HubName
from .quantization import answers, label_of, rank
from .split import PART, numbered, stem_of

SMALLEST_ROOM = 512 << 20
"""Bytes beside the weights for a conversation of some thousand tokens; an eighth of large weights."""

_LISTED = 12
_COMPARED = 100
"""Names that are compared with one that does not exist."""

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_SHARD = re.compile(r"model-\d{5}-of-(?P<count>\d{5})\.safetensors")
_BESIDE = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "quantize_config.json",
    "quantization_config.json",
)
"""What a model in safetensors is read with. Pickles, code and other weights stay where they are."""
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class ChoiceError(UserError):
    """A repository does not have what is asked for, or nothing that this machine could use."""


class Variant(NamedTuple):
    """One form of a model: its files, the one to open first. which: its part of a name."""

    which: str
    label: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where one is not known."""
        return total_size(self.files)

    @property
    def is_folder(self) -> bool:
        """Whether it is opened as a folder, not as a file."""
        return self.which == SAFETENSORS


def needed(size: int) -> int:
    """Bytes of free memory that weights of this size want, with room for a useful conversation."""
    return size + max(SMALLEST_ROOM, size // 8)


def choose(listing: Listing, name: HubName, free: int | None) -> Variant:
    """The model that `name` asks for. free: bytes of memory that it may take; None: nobody knows.

    Where the name leaves the choice: of GGUF files the first in the order of `quantization.ORDER` that fits
    `free`, else the folder with safetensors. ChoiceError lists what there is.
    """
    found = variants(listing)
    if name.wants_file:
        return _by_file(found, listing, name)
    if name.which.lower() == SAFETENSORS:
        folder = next((each for each in found if each.is_folder), None)
        if folder is None:
            raise ChoiceError(f"{name.repo} holds no model in safetensors; {_have(found)}")
        return folder
    if name.which:
        return _by_label(found, name)
    return _best(found, listing, name, free)


def variants(listing: Listing) -> list[Variant]:
    """All forms of the model in a repository, each whole. No projector, importance matrix or draft."""
    groups: dict[tuple[str, int], list[tuple[int, HubFile]]] = defaultdict(list)
    for file in listing.files:
        if not file.name.lower().endswith(".gguf") or _is_no_model(file):
            continue
        part = PART.fullmatch(file.path)
        if part is None:
            groups[file.path, 1].append((1, file))
        else:
            groups[part["stem"], int(part["count"])].append((int(part["number"]), file))
    whole = []
    for (_, count), parts in groups.items():
        parts.sort()
        if len(parts) == count and [number for number, _ in parts] == list(range(1, count + 1)):
            files = tuple(file for _, file in parts)
            whole.append(Variant(files[0].path, label_of(files[0].path), files))
    labels = Counter(variant.label for variant in whole)
    named = [each._replace(which=each.label) if each.label and labels[each.label] == 1 else each
             for each in whole]  # fmt: skip
    folder = _folder(listing)
    return [*sorted(named, key=lambda each: (rank(each.label), each.which)), *([folder] if folder else [])]


def _is_no_model(file: HubFile) -> bool:
    from engine.loading.companions import is_companion  # the first frame needs no engine

    return is_companion(stem_of(file.path))


def _folder(listing: Listing) -> Variant | None:
    """The files of a model in safetensors, None if there is none, or a part is missing."""
    files = {file.path: file for file in listing.files}
    counts = [int(shard["count"]) for shard in map(_SHARD.fullmatch, files) if shard is not None]
    if _SINGLE in files:
        weights = [_SINGLE]
    elif _INDEX in files and counts:
        weights = [_INDEX, *numbered("model", max(counts), ".safetensors")]
    else:
        return None
    if any(name not in files for name in ("config.json", *weights)):
        return None
    beside = [name for name in _BESIDE if name in files and files[name].size != 0]
    return Variant(SAFETENSORS, "", tuple(files[name] for name in (*beside, *weights)))


def _by_file(found: list[Variant], listing: Listing, name: HubName) -> Variant:
    wanted = name.which
    for variant in found:
        if any(file.path == wanted for file in variant.files):
            return variant
    alike = [each for each in found if any(file.name.lower() == PurePosixPath(wanted).name.lower()
                                           for file in each.files)]  # fmt: skip
    if len(alike) == 1 and "/" not in wanted:
        return alike[0]
    file = listing.file(wanted)  # a draft, say, that is asked for by its own name
    if file is not None and PART.fullmatch(file.path) is None:
        return Variant(file.path, label_of(file.path), (file,))
    if file is not None:
        raise ChoiceError(f"{name.repo} does not have all the parts of {shown(wanted)}")
    paths = [each.files[0].path[-100:] for each in found if not each.is_folder]
    meant = did_you_mean(wanted, paths[:_COMPARED], "{}", like=0.6)
    raise ChoiceError(f"{name.repo} has no file {shown(wanted)}; {meant or _have(found)}")


def _by_label(found: list[Variant], name: HubName) -> Variant:
    gguf = [each for each in found if not each.is_folder]
    alike = [each for each in gguf if answers(each.label, name.which)]
    alike = alike or [each for each in gguf if answers(each.label.removeprefix("UD-"), name.which)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise ChoiceError(
            f"{name.repo} has several models in {name.which}; name a file: "
            + _listed(each.files[0].path for each in alike)
        )
    meant = did_you_mean(name.which.upper(), [each.label for each in gguf[:_COMPARED]], "{}", like=0.5)
    raise ChoiceError(
        f"{name.repo} has nothing in {shown(name.which)}{'; ' + meant if meant else ''}; {_have(found)}"
    )


def _best(found: list[Variant], listing: Listing, name: HubName, free: int | None) -> Variant:
    gguf = [each for each in found if not each.is_folder]
    stems = {_stem(each) for each in gguf}
    if len(stems) > 1:
        raise ChoiceError(
            f"{name.repo} holds several models; name one: {_listed(_shown(each) for each in gguf)}"
        )
    if not gguf and found:
        gguf = found
    if not gguf:
        raise ChoiceError(_nothing(listing, name))
    fitting = [each for each in gguf if free is None or each.size is None or needed(each.size) <= free]
    if fitting:
        return fitting[0]
    smallest = min(gguf, key=lambda each: each.size or 0)
    assert free is not None, "else it would fit"
    assert smallest.size is not None, "else it would fit"
    raise ChoiceError(
        f"nothing in {name.repo} fits the {units.size(free)} of memory that are free; the smallest, "
        f"{_shown(smallest)}, wants {units.size(needed(smallest.size))}. "
        f"Name it to take it all the same: hf:{name.repo}:{smallest.which}"
    )


def _nothing(listing: Listing, name: HubName) -> str:
    from engine.loading.pieces import whole_of  # the first frame needs no engine

    names = [file.name.lower() for file in listing.files]
    if whole := next(filter(None, (whole_of(file.name) for file in listing.files)), None):
        return (
            f"{name.repo} holds {whole} in pieces: download them, join them in their order "
            f"(cat PIECES > {whole}), and name it by its path"
        )
    if any(name.endswith(".gguf") for name in names):
        return f"{name.repo} holds no GGUF file that is a whole model; name a file if you mean one of them"
    if any(each.endswith(".safetensors") for each in names):
        return f"{name.repo} holds safetensors, but not as a model: config.json or a part is missing"
    if any(each.endswith(_PICKLES) for each in names):
        return f"{name.repo} holds its weights as pickles only, which can run code and are not loaded"
    return f"{name.repo} holds no model: neither GGUF files nor safetensors"


def _stem(variant: Variant) -> str:
    """What is left of a file's name without its quantization: the model it is."""
    return re.split(
        r"[-._](?=(ud[-_])?(i?q[1-9]|tq[12]|bf16|fp?16|fp?32|mxfp4|nvfp4)(?![a-z]))",
        stem_of(variant.files[0].path).lower(),
    )[0]


def _shown(variant: Variant) -> str:
    size = f" ({units.size(variant.size)})" if variant.size is not None else ""
    return f"{variant.which}{size}"


def _have(found: Iterable[Variant]) -> str:
    names = [_shown(each) for each in found]
    return f"it has {_listed(names)}" if names else "it has no GGUF file that is a model"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_LISTED]) + (f" and {len(every) - _LISTED} more" if len(every) > _LISTED else "")

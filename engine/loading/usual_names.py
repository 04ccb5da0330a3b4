"""The names that tensors have in a model of text alone, whatever is in front of them in a folder.

That is `language_model.` where the text is a part of a model; `module.`, `_orig_mod.` or
`base_model.model.` after some trainings; and nothing where the inner model was saved without its head.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..models.family import Family
from .fields import invalid, shown
from .tensors import Tensor


def by_usual_names(path: Path, family: Family, stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors of a folder by their usual names; what is none of the text's keeps its own.

    The embedding shows what is in front of them. EngineError(model_invalid): one is there by two names.
    """
    inner, _, last = family.names["embedding"][1].partition(".")
    found = [name for name in stored if name == last or name.endswith(f".{last}")]
    if len(found) != 1 or found[0] == f"{inner}.{last}":
        return stored
    front = found[0].removesuffix(last)
    named = [family.layer_prefix, *(names[1] for names in family.names.values())]
    words = {name.split(".")[1] for name in named if name.startswith(f"{inner}.")}
    head = family.names["head"][1]
    heads = {front + head, front.removesuffix(f"{inner}.") + head}
    usual: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        rest = name.removeprefix(front)
        if name.startswith(front) and rest.partition(".")[0] in words:
            name = f"{inner}.{rest}"
        elif name in heads:
            name = head
        if name in usual:
            raise invalid(path, f"tensor {shown(name)} is stored twice, by two names")
        usual[name] = tensor
    return usual
